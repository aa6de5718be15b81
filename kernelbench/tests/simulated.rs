//! Is the simulation a workshop like any other, only faster and always the same?

use std::{path::Path, sync::Arc, time::Duration};
use warpsmith_kernelbench::{
    Candidate, CertificateVerdict, Failure, Outcome, Simulated, Suite, Task, Timed, TimingPlan, Workshop, load,
};

const PLAN: TimingPlan = TimingPlan::median_of(2, 20);

fn task() -> Task {
    load::task(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/silu_and_mul")).unwrap()
}

/// Builds, checks and times, as the loop does.
async fn evaluate(workshop: &Simulated, source: &str) -> Outcome<Timed> {
    let task = task();
    let suite = Suite::of_task(&task);
    let built = match workshop.build(&task, &Candidate::new(source)).await? {
        Ok(built) => built,
        Err(failure) => return Ok(Err(failure)),
    };
    match workshop.check(&task, built, &suite).await? {
        Ok(verified) => workshop.time(&task, &verified, &suite, &PLAN, 0.0).await,
        Err(failure) => Ok(Err(failure)),
    }
}

#[tokio::test]
async fn a_candidate_takes_the_time_that_its_text_says() {
    let timed = evaluate(&Simulated::new(), "// simulate: us=50").await.unwrap().unwrap();
    assert_eq!(timed.cases.len(), 4);
    assert_eq!(timed.cases[0].candidate.samples_ns().len(), 20);
    assert!((timed.speedup.ratio - 2.0).abs() < 0.05, "{}", timed.speedup);
}

#[tokio::test]
async fn the_same_text_always_comes_to_the_same_numbers_and_another_text_to_others() {
    let (one, two) = (Simulated::new(), Simulated::new());
    let first = evaluate(&one, "int a;").await.unwrap().unwrap();
    assert_eq!(first, evaluate(&two, "int a;").await.unwrap().unwrap());
    assert!((0.75..2.6).contains(&first.speedup.ratio), "{}", first.speedup);
    assert_ne!(first, evaluate(&two, "int b;").await.unwrap().unwrap());
}

#[tokio::test]
async fn a_candidate_fails_as_its_text_says() {
    let workshop = Simulated::new();
    let failure =
        async |word: &str| evaluate(&workshop, &format!("/* simulate: {word} */")).await.unwrap().unwrap_err();
    assert!(matches!(failure("build-error").await, Failure::Build { .. }));
    assert!(matches!(failure("wrong").await, Failure::Mismatch { argument, .. } if argument == "out"));
    assert!(matches!(failure("hang").await, Failure::Hang { case, .. } if case == "16x4096"));
    assert!(matches!(failure("crash").await, Failure::Crash { .. }));
    assert!(evaluate(&workshop, "// simulate: fault").await.is_err());
}

#[tokio::test]
async fn a_certificate_says_that_nothing_was_run() {
    let (workshop, task) = (Simulated::new(), task());
    let certify = async |source: &str| {
        let rebuilt = workshop.rebuild(&task, &Candidate::new(source)).await.unwrap();
        workshop.certify(&task, rebuilt, &PLAN).await.unwrap()
    };
    let certificate = certify("// simulate: us=40").await;
    assert!(matches!(&certificate.verdict, CertificateVerdict::Certified(timed) if timed.speedup.ratio > 2.0));
    assert!(certificate.checked.iter().all(|check| !check.done) && certificate.build.starts_with("simulated"));
    let refused = certify("// simulate: us=40 refused").await;
    assert!(matches!(refused.verdict, CertificateVerdict::Refused(Failure::Mismatch { .. })));
}

#[tokio::test(start_paused = true)]
async fn how_many_run_at_the_same_time_is_counted() {
    let workshop = Arc::new(Simulated::new());
    let one = |n: u64| {
        let workshop = workshop.clone();
        tokio::spawn(async move { evaluate(&workshop, &format!("// simulate: build_ms=20 run_ms=20 us={n}")).await })
    };
    let started = tokio::time::Instant::now();
    let three = [one(1), one(2), one(3)];
    for evaluation in three {
        evaluation.await.unwrap().unwrap().unwrap();
    }
    assert_eq!((workshop.most_building(), workshop.most_checking(), workshop.builds()), (3, 3, 3));
    assert_eq!((workshop.most_running(), workshop.disturbed()), (1, 0), "each is timed alone");
    // Builds beside one another, then checks; then one timing after the other.
    assert_eq!(started.elapsed(), Duration::from_millis(100));
    assert_eq!(Simulated::new().most_running(), 0);
}

#[tokio::test]
async fn a_case_that_is_too_large_does_not_fit() {
    let task = task();
    let mut huge = task.cases[0].clone();
    huge.scalars.insert("tokens".into(), warpsmith_kernelbench::Number::Integer(i64::MAX / 8193));
    let fits = Simulated::new().fits(&task, &[task.cases[0].clone(), huge]).await.unwrap();
    assert_eq!(fits[0], Ok(16 * 4096 * 3 * 4));
    assert!(fits[1].is_err());
}
