//! Are the certificate's number and the rounds' of different shapes? Then they do not compare, and are told apart.

use agents::trajectory::Trajectory;
use kernelbench::{CertificateVerdict, Provenance};

/// Names that are written out.
const NAMED: usize = 4;

/// What each of them is over, in a sentence; `None` where both are of the same cases, or nothing is certified.
#[must_use]
pub fn apart(story: &Trajectory) -> Option<String> {
    let certificate = story.certified()?;
    let CertificateVerdict::Certified(certified) = &certificate.verdict else { return None };
    let measured = story.evaluation(&certificate.candidate)?.passed()?;
    let names = |timed: &kernelbench::Timed| timed.cases.iter().map(|case| case.case.clone()).collect::<Vec<_>>();
    let (here, there) = (names(certified), names(measured));
    // A model's shapes may bear the names of the task's.
    let of_a_model = story.suite.as_ref().is_some_and(|suite| suite.provenance == Provenance::Model);
    (of_a_model || here != there).then(|| {
        let (here, there) = (list(&here), list(&there));
        format!("the certified number is of {here}, the rounds' numbers of {there}: these do not compare")
    })
}

fn list(names: &[String]) -> String {
    let more = names.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    names[..names.len().min(NAMED)].join(", ") + &more
}
