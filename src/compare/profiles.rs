//! What did the profiler read of two candidates, side by side (Astra §5.3: profiles back what is said of a kernel)?

use crate::{quantity, show};
use metrics::{Profile, Reading};
use serde::Serialize;
use std::fmt::Write;

/// The readings that two profiles share.
#[derive(Debug, Serialize)]
pub struct Profiles {
    /// Where both were taken: how deep they look, and on which case.
    pub of: [String; 2],
    /// Of the whole call, then of the kernel that takes longest in each.
    pub groups: Vec<Group>,
}

/// The readings of a call, or of a kernel each.
#[derive(Debug, Serialize)]
pub struct Group {
    /// What was looked at; a kernel has its name.
    pub of: [String; 2],
    /// What both profiles have.
    pub readings: Vec<[Reading; 2]>,
}

impl Profiles {
    /// What both have; groups without a common reading are left out.
    #[must_use]
    pub fn of(both: [&Profile; 2]) -> Self {
        let call = Group::of(["the call".to_owned(), "the call".to_owned()], both.map(|one| one.readings.as_slice()));
        let kernels = match both.map(|one| one.kernels.first()) {
            [Some(one), Some(other)] => {
                Some(Group::of([one, other].map(|kernel| kernel.name.clone()), [&one.readings, &other.readings]))
            }
            _ => None,
        };
        let groups = [Some(call), kernels].into_iter().flatten().filter(|group| !group.readings.is_empty());
        let of = both.map(|one| format!("{} on case {}", one.rung.describe(), one.case));
        Self { of, groups: groups.collect() }
    }

    pub(super) fn text(&self, names: &[String; 2]) -> String {
        let mut text = String::new();
        for ([name, of], nth) in names.iter().zip(&self.of).map(|(name, of)| [name, of]).zip(["profiled", "        "]) {
            let _ = writeln!(text, "{nth}  {name}: {of}");
        }
        for Group { of: [one, other], readings } in &self.groups {
            let both = if one == other { one.clone() } else { format!("{one}, and {other}") };
            let _ = writeln!(text, "  {both}");
            let row = |[one, other]: &[Reading; 2]| {
                let ratio = match (one.value, other.value) {
                    (Some(from), Some(to)) if from != 0.0 => format!("{:.2}x", to / from),
                    _ => String::new(),
                };
                let [from, to] = [one, other].map(quantity::reading);
                [format!("    {}", show::reading_name(one)), from, to, ratio]
            };
            text += &show::columns(&readings.iter().map(row).collect::<Vec<_>>());
        }
        if self.groups.is_empty() {
            text += "  they have no reading in common\n";
        }
        text
    }
}

impl Group {
    fn of(of: [String; 2], [one, other]: [&[Reading]; 2]) -> Self {
        let same = |reading: &Reading| other.iter().find(|two| two.name == reading.name && two.unit == reading.unit);
        let pair = |reading: &Reading| Some([reading.clone(), same(reading)?.clone()]);
        Self { of, readings: one.iter().filter_map(pair).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;
    use agents::trajectory::Trajectory;

    #[test]
    fn what_both_have_stands_side_by_side_with_its_ratio() {
        let story: Trajectory = sample::certified().lines.iter().map(|line| line.event.clone()).collect();
        let first = story.rounds.iter().find_map(|round| round.profile.as_ref()?.as_ref().ok()).unwrap();
        let mut second = first.clone();
        second.readings[0].value = second.readings[0].value.map(|value| value / 2.0);
        second.readings.remove(1);
        second.kernels[0].name = "fused".into();
        let found = Profiles::of([first, &second]);
        let text = found.text(&["RUN@c1".into(), "RUN@c2".into()]);
        assert_eq!(found.groups.iter().map(|group| group.readings.len()).collect::<Vec<_>>(), [3, 2], "{text}");
        let halved = text.lines().find(|line| line.contains("Ir ")).unwrap();
        assert!(halved.ends_with("0.50x"), "{text}");
        assert!(
            text.contains("softmax_kernel, and fused") && text.contains("RUN@c2: ") && !text.contains("D1mr"),
            "{text}"
        );
        // What nobody read has no ratio.
        assert!(text.lines().any(|line| line.contains("stalls") && !line.contains('x')), "{text}");
    }
}
