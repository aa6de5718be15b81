//! Does the page say what happened, and nothing that somebody smuggled in?

use super::{
    ReportInput,
    batch::BatchInput,
    html,
    sample::{self, Sample},
};
use crate::scores::{RunScores, TaskScore};
use agents::trajectory::Trajectory;
use metrics::MachineKind;

fn page(sample: &Sample) -> String {
    let trajectory: Trajectory = sample.lines.iter().map(|line| line.event.clone()).collect();
    let facts = [("warpsmith".to_owned(), "0.1.0".to_owned())];
    let fetch = |hash: &_| sample.blobs.get(hash).cloned();
    html(&ReportInput { trajectory: &trajectory, lines: &sample.lines, fetch: &fetch, facts: &facts })
}

#[test]
fn the_first_thing_said_is_the_certified_number_and_its_interval() {
    let page = page(&sample::certified());
    let claim = page.split("class=\"claim faster\"").nth(1).unwrap().split("</section>").next().unwrap();
    assert!(claim.contains("3.11×") && claim.contains("95 % interval") && claim.contains("Certified"), "{claim}");
}

#[test]
fn a_certificate_on_other_shapes_than_the_rounds_stands_apart_from_them_and_says_so() {
    let words = "the certified number is of final-prefill, final-decode, the rounds&#x27; numbers of prefill, decode";
    let elsewhere = page(&sample::certified_elsewhere());
    assert_eq!(elsewhere.matches(words).count(), 3, "the certificate, the chart and below the chart");
    assert!(elsewhere.contains("<g class=\"certified elsewhere\">") && elsewhere.contains("<line class=\"apart\""));
    let alike = page(&sample::certified());
    assert!(alike.contains("<g class=\"certified\">") && !alike.contains("do not compare"));
}

#[test]
fn what_was_timed_beside_a_baseline_names_it_in_its_charts() {
    let mut sample = sample::certified();
    let over = |line: agents::event::Line| {
        let text =
            serde_json::to_string(&line).unwrap().replace("\"statistic\":", "\"against\":\"openblas\",\"statistic\":");
        serde_json::from_str(&text).unwrap()
    };
    sample.lines = sample.lines.into_iter().map(over).collect();
    let page = page(&sample);
    assert!(page.contains("text-anchor=\"end\">openblas</text>") && page.contains("decode: openblas and candidate"));
    assert!(!page.contains("text-anchor=\"end\">the reference</text>"));
}

#[test]
fn without_a_certificate_no_number_is_claimed() {
    let page = page(&sample::unfinished());
    assert!(page.contains("<div class=\"words\">Not certified</div>"));
    assert!(page.contains("The run has not ended"));
}

#[test]
fn a_simulation_is_called_one_in_the_largest_letters() {
    let page = page(&sample::simulated());
    assert!(page.contains("<div class=\"words\">Simulated: 3.11×</div>"));
    assert!(page.contains("no kernel ran"));
}

#[test]
fn a_run_without_a_right_answer_says_so() {
    let page = page(&sample::hopeless());
    assert!(page.contains("<div class=\"words\">Nothing correct was found</div>"));
    assert!(page.contains("expf8"), "the compiler's words are shown");
}

#[test]
fn nothing_from_outside_becomes_markup() {
    const ATTACK: &str = "\n</script></pre></style><img src=x onerror=alert(1)>\"' onload=alert(2) {{ page.title }}";
    let page = page(&sample::tainted(ATTACK));
    assert!(page.matches("&lt;img src=x onerror=alert(1)&gt;").count() > 60, "the taint is shown, as text");
    assert!(!page.contains("<img") && !page.contains("</script>"), "a tag got through");
    assert!(!page.contains("\" onload") && !page.contains("' onload"), "an attribute was left");
}

#[test]
fn the_page_needs_nothing_but_itself() {
    let page = page(&sample::certified());
    for outside in ["<script", "<link", "@import", "url(", "http://", "https://", " src="] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn every_round_can_be_opened_and_a_failed_one_is_marked() {
    let page = page(&sample::certified());
    for round in 1..=6 {
        assert!(page.contains(&format!("id=\"round-{round}\"")), "{round}");
    }
    assert_eq!(page.matches("<g class=\"failed\">").count(), 2, "the build failure and the unreadable reply");
    assert!(page.contains("No readable coder reply: no code block in the reply"));
}

#[test]
fn an_unknown_price_is_not_zero() {
    let page = page(&sample::certified());
    assert!(page.contains("price unknown"), "the coder's calls have no price");
    assert!(page.contains("and 5 calls of unknown price"), "nor has their part of the sum");
}

/// The page of a batch whose tasks are these samples.
fn batch(samples: &[Sample], name: &str) -> String {
    let story = |sample: &Sample| -> Trajectory { sample.lines.iter().map(|line| line.event.clone()).collect() };
    let score = |(at, sample): (usize, &Sample)| {
        let fetch = |hash: &_| sample.blobs.get(hash).cloned();
        TaskScore::of(&format!("{at}-{name}"), &story(sample), &sample.lines, &fetch)
    };
    let scores = RunScores {
        run: name.to_owned(),
        model: name.to_owned(),
        policy: name.to_owned(),
        machine: name.to_owned(),
        simulated: false,
        tasks: samples.iter().enumerate().map(score).collect(),
    };
    let (facts, unreadable) = ([(name.to_owned(), name.to_owned())], [(name.to_owned(), name.to_owned())]);
    let input = BatchInput { scores: &scores, facts: &facts, unreadable: &unreadable, kind: MachineKind::Cpu };
    let mut visit = |task: &str, write: &mut dyn FnMut(&ReportInput) -> std::io::Result<()>| {
        let sample = &samples[task.split('-').next().unwrap().parse::<usize>().unwrap()];
        let fetch = |hash: &_| sample.blobs.get(hash).cloned();
        write(&ReportInput { trajectory: &story(sample), lines: &sample.lines, fetch: &fetch, facts: &facts })
    };
    let mut page = vec![];
    super::batch::write(&input, &mut visit, &mut page).unwrap();
    String::from_utf8(page).unwrap()
}

#[test]
fn the_page_of_a_batch_counts_its_tasks_and_opens_each() {
    let page = batch(&[sample::certified(), sample::hopeless(), sample::unfinished()], "silu");
    assert!(page.contains("<div class=\"words\">1 of 3 ended; 2 right so far, 2 faster</div>"));
    assert!(page.contains("Not ended: 2 of "), "one was never given a certificate, one never an end");
    for at in 0..3 {
        assert!(page.contains(&format!("id=\"task-{at}\"")) && page.contains(&format!("id=\"task-{at}-round-1\"")));
    }
    assert!(page.contains("Speedup against rounds") && page.contains("geometric mean of s"));
    assert!(
        page.contains("So far, tasks that have begun: speedup s over the reference")
            && page.contains("<g class=\"hollow\">")
    );
    assert!(page.contains("Certified alone: speedup s over the reference"), "one of them is");
    assert!(page.trim_end().ends_with("</html>"));
}

#[test]
fn a_task_that_has_not_begun_is_no_failure_of_a_batch_that_goes_on() {
    let page = batch(&[sample::unfinished(), Sample::default(), Sample::default()], "silu");
    assert!(page.contains("Not begun: 2 of 3 tasks") && page.contains("all (n = 1)"), "{page}");
    assert!(page.contains("tasks without a right candidate, 0.</figcaption>"), "{page}");
}

#[test]
fn right_candidates_that_are_not_certified_yet_are_not_called_none() {
    let page = batch(&[sample::unfinished(), sample::unfinished()], "silu");
    assert!(page.contains("<div class=\"words\">0 of 2 ended; 2 right so far, 2 faster</div>"));
    assert!(
        page.contains("None is certified yet") && !page.contains("Certified alone"),
        "nor is there a table of zeros"
    );
    let correct = page.split("<code>correct</code>").nth(1).unwrap();
    assert!(correct[..120].contains(">1.000<"), "{}", &correct[..120]);
    let whole = batch(&[sample::certified()], "silu");
    assert!(whole.contains("<div class=\"words\">1 of 1 correct, 1 faster</div>") && !whole.contains("So far"));
}

#[test]
fn a_batch_says_how_many_of_its_correct_are_so_only_as_their_tasks_draw_their_inputs() {
    let page = batch(&[sample::certified(), sample::certified_as_drawn()], "silu");
    assert!(page.contains("<div class=\"words\">2 of 2 correct (1 only on inputs as drawn), 2 faster</div>"));
    assert!(
        page.contains("1 of the correct are wrong on inputs of both signs")
            && page.contains("faster, only on inputs as drawn")
    );
    let strict = page.split("only as drawn is a failure").count();
    assert!(strict > 1, "a column of scores that counts it as a failure");
    assert!(!batch(&[sample::certified()], "silu").contains("as drawn"));
}

#[test]
fn nothing_from_outside_becomes_markup_on_the_page_of_a_batch() {
    const ATTACK: &str = "</style><img src=x onerror=alert(1)>\"' onload=alert(2) <!-- tasks --> {{ page.title }}";
    let page = batch(&[sample::tainted(ATTACK)], ATTACK);
    assert!(page.matches("&lt;img src=x onerror=alert(1)&gt;").count() > 60, "the taint is shown, as text");
    assert!(!page.contains("<img") && !page.contains("<!-- tasks") && !page.contains("\" onload"), "it got through");
    for outside in ["<script", "<link", "@import", "url(", " src="] {
        assert!(!page.replace("&lt;img src=x", "").contains(outside), "{outside}");
    }
}
