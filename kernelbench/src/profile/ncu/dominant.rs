//! Which kernels does the time of a call go to?

use metrics::Reading;
use std::collections::BTreeMap;

/// What the sum of all kernels' durations is called.
const KERNELS_TIME: &str = "time of all kernels";
/// Kernels that are shown at most.
const SHOWN: usize = 3;
/// The share of the time after which further kernels are left out.
const ENOUGH: f64 = 0.9;

/// The launches of one kernel in one shape.
#[derive(Clone, Debug)]
pub struct Launches {
    /// The kernel's name.
    pub name: String,
    /// Grid and block, in blocks and in threads; zeros where there is none.
    pub shape: [[u64; 3]; 2],
    /// How many.
    pub count: u64,
    /// What all of them took, in nanoseconds.
    pub ns: f64,
    /// What is known of one of them.
    pub facts: Vec<Reading>,
}

impl Launches {
    fn each(&self) -> f64 {
        self.ns / self.count.max(1) as f64
    }
}

/// A kernel that much of the time goes to.
#[derive(Clone, Copy, Debug)]
pub struct Dominant<'a> {
    /// How often the call launches it, in any shape.
    pub launches: u64,
    /// Its share of the time of all kernels, from 0 to 1.
    pub share: f64,
    /// Its longest launches: name, shape, facts.
    pub longest: &'a Launches,
}

/// What a whole call launches: how often, and how long its kernels take together.
#[must_use]
pub fn of_call(launches: &[Launches]) -> Vec<Reading> {
    let count: u64 = launches.iter().map(|launched| launched.count).sum();
    let ns: f64 = launches.iter().map(|launched| launched.ns).sum();
    let ns = Some(ns).filter(|ns| *ns > 0.0);
    vec![
        Reading::new("launches", Some(count as f64), "", "kernels that one call launches"),
        Reading::new(
            KERNELS_TIME,
            ns,
            "ns",
            "all kernels of one call together; what the call takes beyond it is launch gaps and host work",
        ),
    ]
}

/// The kernels that make up most of the time, the first the longest, and in words what was left out.
#[must_use]
pub fn dominant(launches: &[Launches]) -> (Vec<Dominant<'_>>, Vec<String>) {
    let whole: f64 = launches.iter().map(|launched| launched.ns).sum();
    let share = |ns: f64| if whole > 0.0 { ns / whole } else { 0.0 };
    let mut kernels: BTreeMap<&str, Dominant<'_>> = BTreeMap::new();
    for launched in launches {
        let entry = Dominant { launches: 0, share: 0.0, longest: launched };
        let kernel = kernels.entry(&launched.name).or_insert(entry);
        kernel.launches += launched.count;
        kernel.share += share(launched.ns);
        if launched.each() > kernel.longest.each() {
            kernel.longest = launched;
        }
    }
    let mut ranked: Vec<Dominant<'_>> = kernels.into_values().collect();
    ranked.sort_by(|one, other| other.share.total_cmp(&one.share));
    let mut covered = 0.0;
    let enough = |kernel: &Dominant<'_>| {
        let before = covered;
        covered += kernel.share;
        before >= ENOUGH
    };
    let shown = ranked.iter().position(enough).unwrap_or(ranked.len()).min(SHOWN);
    let rest = ranked.split_off(shown.max(1).min(ranked.len()));
    let mut notes = vec![];
    if !rest.is_empty() {
        let part: f64 = rest.iter().map(|kernel| kernel.share).sum();
        notes.push(format!("further kernels not shown: {}, {:.0} % of the time", rest.len(), part * 100.0));
    }
    (ranked, notes)
}

/// A kernel's own name, without its namespaces, what it returns, and its arguments: profilers write these each in its way.
#[must_use]
pub fn base(name: &str) -> String {
    let nameless = ["(anonymous namespace)::", "<unnamed>::", "unnamed>::"];
    let name = nameless.iter().fold(name.to_owned(), |name, nameless| name.replace(nameless, ""));
    let name = name.strip_prefix("void ").unwrap_or(&name);
    let name = &name[..name.find(['<', '(']).unwrap_or(name.len())];
    name.rsplit("::").next().unwrap_or(name).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launches(name: &str, count: u64, ns: f64) -> Launches {
        Launches { name: name.to_owned(), shape: [[1; 3]; 2], count, ns, facts: vec![] }
    }

    #[test]
    fn the_kernels_that_cover_most_of_the_time_are_shown_with_their_shares_and_the_rest_is_counted() {
        let all = [launches("a", 1, 50.0), launches("b", 4, 850.0), launches("a", 2, 40.0), launches("c", 1, 60.0)];
        let (shown, notes) = dominant(&all);
        let told: Vec<_> = shown.iter().map(|kernel| (kernel.longest.name.as_str(), kernel.launches)).collect();
        assert_eq!(told, [("b", 4), ("a", 3)]);
        assert!((shown[1].share - 0.09).abs() < 1e-9, "{shown:?}");
        assert_eq!(notes, ["further kernels not shown: 1, 6 % of the time"]);
    }

    #[test]
    fn two_profilers_mean_the_same_kernel() {
        for (one, other) in [
            (
                "void unnamed>::cunn_SoftMaxForward<4, float>(T4 *)",
                "void (anonymous namespace)::cunn_SoftMaxForward<4>()",
            ),
            (
                "void vectorized_elementwise_kernel<4, unnamed>::softplus_kernel(int)::[lambda()]>(int, T2)",
                "void at::native::vectorized_elementwise_kernel<4, at::native::(anonymous namespace)::softplus>(int)",
            ),
            ("<unnamed>::vectors(__half *, long)", "(anonymous namespace)::vectors(__half*, long)"),
            ("silu_k", "silu_k(float const*, float*, int)"),
        ] {
            assert_eq!(base(one), base(other));
        }
    }
}
