//! What kind of win is it: does a call's time go to kernels that the candidate brought, or to those of torch and of libraries?
//! (CudaForge §3.4 and KernelBench's trackers ask it of every speedup: CF-73, CF-74.)

use super::ncu::base;
use metrics::{Kernel, Profile, Reading};

/// The reading's name.
pub const OWN_KERNELS: &str = "own kernels";

/// Of the time of the kernels that a profile shows, the share in percent that goes to kernels whose name is a word of the
/// candidate's source. `None` where no kernel is shown with its share.
#[must_use]
pub(crate) fn own_kernels(profile: &Profile, source: &str) -> Option<Reading> {
    let shares = |of: &dyn Fn(&Kernel) -> bool| -> f64 {
        profile.kernels.iter().filter(|kernel| of(kernel)).filter_map(|kernel| kernel.share).sum()
    };
    let shown = shares(&|_| true);
    let own = shares(&|kernel| has_word(source, &base(&kernel.name)));
    let meaning = "of the time of the kernels shown: in kernels that the candidate's source names; the rest are torch's or a \
                   library's";
    (shown > 0.0).then(|| Reading::new(OWN_KERNELS, Some(100.0 * own / shown), "%", meaning))
}

fn has_word(text: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    !word.is_empty() && text.split(|c| !part(c)).any(|found| found == word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use metrics::Rung;

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
    fn a_profile_without_kernels_says_nothing() {
        assert!(own_kernels(&profile(&[]), "anything").is_none());
    }
}
