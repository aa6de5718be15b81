//! Can a kernel be taken out, and if not, why?

use super::launches::Launch;
use crate::{inventory, operator, tree::Tree};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const KERNELS: &str = include_str!("../../operators/kernels.toml");

/// What is known of kernels by their names.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Names {
    operators: BTreeMap<String, Vec<String>>,
    kind: Vec<Kind>,
    /// Of a tree: why an operator of ours cannot be taken out of it.
    #[serde(skip)]
    lacking: BTreeMap<String, String>,
}

/// A kind of kernels that cannot be taken out.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kind {
    name: String,
    words: Vec<String>,
    why: String,
}

/// Whether a kernel can be taken out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Standing {
    /// The operators that it may be, by name: more than one where their kernels have one name.
    pub operators: Vec<String>,
    /// Why it cannot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why_not: Option<String>,
    /// What kind of work it is, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
}

impl Names {
    /// Those that come with the program, and what a tree lacks.
    ///
    /// # Panics
    /// Where the embedded table cannot be read, which a test rules out.
    #[must_use]
    pub fn of(tree: Option<&Tree>) -> Self {
        let mut names: Self = toml::from_str(KERNELS).expect("a test reads the embedded table");
        let lacking = tree.map(inventory::operators).unwrap_or_default();
        names.lacking = lacking.into_iter().filter_map(|(operator, why)| Some((operator.name, why?))).collect();
        names
    }

    /// What is known of a kernel.
    #[must_use]
    pub fn standing(&self, launch: &Launch) -> Standing {
        let operators = self.operators_of(launch);
        if !operators.is_empty() {
            let why_not = operators.iter().find_map(|name| self.lacking.get(name)).cloned();
            return Standing { operators, why_not, kind: None };
        }
        let kind = self.kind.iter().find(|kind| kind.words.iter().any(|word| launch.full.contains(word.as_str())));
        let why_not = refused(launch).or_else(|| kind.map(|kind| kind.why.clone()));
        let why_not = why_not.unwrap_or_else(|| inventory::NOBODY.to_owned());
        let kind = kind.filter(|_| refused(launch).is_none()).map(|kind| kind.name.clone());
        Standing { operators, why_not: Some(why_not), kind }
    }

    /// By the function's name; of several, the one that the operator on the host is called.
    fn operators_of(&self, launch: &Launch) -> Vec<String> {
        let called = |functions: &Vec<String>| functions.contains(&launch.kernel);
        let by_kernel: Vec<&String> = self.operators.iter().filter(|(_, f)| called(f)).map(|(name, _)| name).collect();
        let on_host = |name: &&&String| launch.operators.iter().any(|call| plain(&call.name) == name.as_str());
        match by_kernel.iter().find(on_host) {
            Some(one) => vec![(**one).clone()],
            None => by_kernel.into_iter().cloned().collect(),
        }
    }
}

/// An operator's name without its library: `sgl_kernel::silu_and_mul`.
#[must_use]
pub fn plain(name: &str) -> &str {
    name.rsplit("::").next().unwrap_or(name)
}

/// Why an operator that was looked at cannot be taken out, by what the host calls it or the kernel's own name.
fn refused(launch: &Launch) -> Option<String> {
    let names = launch.operators.iter().map(|call| plain(&call.name)).chain([launch.kernel.as_str()]);
    let known = |name: &str| operator::refused().iter().find(|one| one.is(name)).map(|one| one.why.clone());
    names.into_iter().find_map(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operator_has_kernels_by_name_and_no_other_has() {
        let names = Names::of(None);
        let known: Vec<String> = operator::all().into_iter().map(|one| one.name).collect();
        assert_eq!(names.operators.keys().cloned().collect::<Vec<_>>(), known);
    }

    #[test]
    fn a_kernel_is_of_the_kind_that_its_whole_name_says() {
        let names = Names::of(None);
        for (full, kind) in [
            ("void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<1> > >(P)", Some("attention")),
            ("void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<1> >(P)", Some("matrix product")),
            ("void flashinfer::BatchDecodeWithPagedKVCacheKernel<1>(P)", Some("attention")),
            ("void flashinfer::sampling::TopKTopPSamplingFromProbKernel<1>(float*)", None),
            ("void flashinfer::norm::RMSNormKernel<8u, __half>(__half*)", None),
            ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(P)", Some("communication")),
            ("triton_poi_fused_mul_0", Some("triton")),
        ] {
            let launch = Launch {
                kernel: super::super::launches::short(full),
                full: full.to_owned(),
                start: 0.0,
                us: 1.0,
                stream: String::new(),
                operators: vec![],
                in_graph: false,
                step: None,
            };
            assert_eq!(names.standing(&launch).kind.as_deref(), kind, "{full}");
        }
    }
}
