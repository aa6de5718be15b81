//! What kind of win is it: does a call's time go to kernels that the candidate brought, or to those of torch and of libraries?
//! (CudaForge §3.4 and KernelBench's trackers ask it of every speedup: CF-73, CF-74.)

use super::ncu::{Launches, base};
use crate::result::label::{Kind, Label};
use metrics::{Profile, Reading};

/// The reading's name.
pub const OWN_KERNELS: &str = "own kernels";

/// Of the time of the kernels that a profile shows, the share in percent that goes to kernels whose name is a word of the
/// candidate's source. `None` where no kernel is shown with its share.
#[must_use]
pub(crate) fn own_kernels(profile: &Profile, source: &str) -> Option<Reading> {
    let shown = profile.kernels.iter().filter_map(|kernel| Some((kernel.name.as_str(), kernel.share?)));
    let meaning = "of the time of the kernels shown: in kernels that the candidate's source names; the rest are torch's or a \
                   library's";
    named(shown, source).map(|share| Reading::new(OWN_KERNELS, Some(share), "%", meaning))
}

/// The same of all launches of a call. `None` where none took time.
#[must_use]
pub(crate) fn own_share(launches: &[Launches], source: &str) -> Option<f64> {
    named(launches.iter().map(|one| (one.name.as_str(), one.ns)), source)
}

/// Of what these kernels took, the share in percent of those that a source names.
fn named<'a>(took: impl Iterator<Item = (&'a str, f64)>, source: &str) -> Option<f64> {
    let (all, own) = took.fold((0.0, 0.0), |(all, own), (kernel, took)| {
        (all + took, if is_named(source, kernel) { own + took } else { own })
    });
    (all > 0.0).then(|| 100.0 * own / all)
}

/// The labels that say what kind of win it is: whose source names so many percent of its time's kernels, and which is so many
/// times as fast as the reference.
pub(crate) fn labels(share: Option<f64>, source: &str, ratio: f64) -> Vec<Label> {
    let alone = share.filter(|share| *share < NOTHING).map(|_| {
        let brings = BRINGS.iter().any(|word| source.contains(word));
        let text = if brings {
            "no kernel that its source names was seen to run: on these inputs it falls back to torch's and libraries', or names its own \
             in another way"
        } else {
            "no kernel of its own was seen: it calls torch's and libraries' alone"
        };
        Label::new(Kind::NoOwnKernel, text.to_owned())
    });
    let near = ((1.0 / NEAR)..=NEAR).contains(&ratio);
    let near = near.then(|| Label::new(Kind::NearReference, format!("within 5 % of the reference: {ratio:.3} times")));
    alone.into_iter().chain(near).collect()
}

/// Up to so many percent of the time is no part that counts.
const NOTHING: f64 = 0.5;
/// What makes no difference to speak of (CF-73).
const NEAR: f64 = 1.05;
/// What stands in a source that brings kernels.
const BRINGS: [&str; 6] = ["__global__", "triton.jit", "import jit", "_compile_kernel", "RawKernel", "RawModule"];

/// Whether a kernel's name is a word of a source, and it is none of torch's or CUTLASS's own.
fn is_named(source: &str, kernel: &str) -> bool {
    !THEIRS.iter().any(|theirs| kernel.contains(theirs)) && has_word(source, &base(kernel))
}

/// Namespaces of kernels that no candidate brings.
const THEIRS: [&str; 2] = ["at::native::", "cutlass::Kernel"];

fn has_word(text: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    !word.is_empty() && text.split(|c| !part(c)).any(|found| found == word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use metrics::{Kernel, Rung};

    fn profile(kernels: &[(&str, f64)]) -> Profile {
        let kernel = |(name, share): &(&str, f64)| Kernel {
            name: (*name).to_owned(),
            launches: None,
            share: Some(*share),
            readings: vec![],
        };
        let kernels = kernels.iter().map(kernel).collect();
        Profile { rung: Rung::Ncu, case: "default".to_owned(), readings: vec![], kernels, notes: vec![] }
    }

    #[test]
    fn time_in_kernels_that_the_source_names_is_the_candidates_own() {
        let seen = profile(&[
            ("void (anonymous namespace)::gate<float, 4>(float const*, float*)", 0.6),
            ("sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n", 0.2),
        ]);
        let source = "template <typename T, int N> __global__ void gate(const T* x, T* y) {}";
        let own = own_kernels(&seen, source).unwrap();
        assert!((own.value.unwrap() - 75.0).abs() < 1e-9, "{own:?}");
        let alone = own_kernels(&seen, "def forward(self, x): return torch.mm(x, self.gates)").unwrap();
        assert_eq!(alone.value, Some(0.0), "a part of a word is no name");
    }

    #[test]
    fn a_label_says_who_has_no_kernel_of_its_own_and_who_gains_nothing() {
        let launch = |name: &str, ns| Launches { name: name.into(), shape: [[1; 3]; 2], count: 1, ns, facts: vec![] };
        let calls = [launch("void gate<float>(float*)", 1.0), launch("sm90_xmma_gemm_f32f32", 299.0)];
        let share = |source: &str| own_share(&calls, source);
        let said =
            |source: &str, ratio| labels(share(source), source, ratio).iter().map(|one| one.kind).collect::<Vec<_>>();
        assert_eq!(own_share(&[], "gate"), None);
        assert!((share("__global__ void gate").unwrap() - 100.0 / 300.0).abs() < 1e-9);
        assert_eq!(said("__global__ void gate", 2.0), [Kind::NoOwnKernel], "a third of a percent is nothing");
        assert_eq!(said("__global__ void xmma", 0.96), [Kind::NoOwnKernel, Kind::NearReference]);
        assert!(labels(share("torch.mm"), "torch.mm", 2.0)[0].text.contains("alone"));
        assert!(labels(share("__global__"), "__global__", 2.0)[0].text.contains("falls back"));
        let torchs = [launch("void at::native::reduce_kernel<512, 1>(float*)", 1.0)];
        assert_eq!(own_share(&torchs, "__global__ void reduce_kernel"), Some(0.0), "a word that is torch's, too");
        assert!(labels(Some(60.0), "gate", 1.06).is_empty() && labels(None, "gate", 0.9).is_empty());
    }

    #[test]
    fn a_profile_without_kernels_says_nothing() {
        assert!(own_kernels(&profile(&[]), "anything").is_none());
    }
}
