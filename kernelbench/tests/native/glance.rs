//! What a brief look at a configuration of a search finds.

use super::{PLAN, RIGHT, alone, children, kernel, on_this_thread, suite, task, workshop};
use warpsmith_kernelbench::{Candidate, Evaluation, Failure, Workshop};

#[test]
fn a_glance_times_briefly_what_is_right_and_fails_what_is_wrong_on_any_case() {
    let _alone = alone();
    let (workshop, task, plan) = (workshop(), task(), PLAN.glance());
    let suite = suite(&task);
    let glance = |source: &str| {
        on_this_thread(async {
            let built = workshop.build(&task, &Candidate::new(source)).await.unwrap().unwrap();
            workshop.glance(&task, built, &suite, &plan, 0.0).await.unwrap()
        })
    };
    let Evaluation::Passed(timed) = glance(&kernel(RIGHT)) else { panic!("it is right") };
    let samples = timed.cases[0].candidate.samples_ns().len();
    assert!((3..=plan.repetitions as usize).contains(&samples), "{samples} samples");
    let Evaluation::Failed(failed) = glance(&kernel(&format!("{RIGHT} if (n == 1000) out[999] += 1;"))) else {
        panic!("it is wrong on the case that is not timed")
    };
    assert!(matches!(&failed, Failure::Mismatch { case, .. } if case.contains("small")), "{failed:?}");
    let Evaluation::Failed(failed) = glance(&kernel("*(volatile int *)8 = 1;")) else { panic!("it crashes") };
    assert!(matches!(failed, Failure::Crash { .. }), "{failed:?}");
    assert_eq!(children(), Vec::<String>::new());
}
