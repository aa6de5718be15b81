//! What do a plug-in and validation read of the kernels that go back?

use super::{
    found::Found,
    interface::{Argument, Interface},
};
use crate::{Error, chain, operator};
use kernelbench::{Case, CertificateVerdict, Hash, Language, Number};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Arrays were at multiples of this when the kernel was certified, in bytes: what the GPU's allocator gives.
const ALIGNMENT: u64 = 256;
/// What the framework's `load_jit` compiles everything with.
const LOAD_JIT: [&str; 4] = ["-std=c++20", "-O3", "--expt-relaxed-constexpr", "-DSGL_CUDA_ARCH=900"];

/// A kernel that goes back, and what the framework's call looks like.
#[derive(Debug)]
pub struct Kernel {
    /// The kernel.
    pub found: Found,
    /// Its operator.
    pub interface: Interface,
}

impl Kernel {
    /// With its operator.
    ///
    /// # Errors
    ///
    /// If this program does not know the operator.
    pub fn of(found: Found) -> Result<Self, Error> {
        let interface = Interface::of(&found.origin().operator)?;
        Ok(Self { found, interface })
    }

    /// Its operator's name.
    #[must_use]
    pub fn operator(&self) -> &str {
        &self.found.origin().operator
    }

    /// The type of its elements.
    #[must_use]
    pub fn dtype(&self) -> &str {
        &self.found.origin().dtype
    }

    /// Whether the framework compiles its file at run time.
    #[must_use]
    pub fn is_run_time(&self) -> bool {
        self.found.origin().level == "J"
    }

    /// Where its text lies in a package: a folder of its own, since two of one file differ only in that.
    #[must_use]
    pub fn source(&self) -> String {
        let file = self.found.origin().file.rsplit('/').next().unwrap_or("kernel.cu");
        format!("sources/{}_{}/{file}", self.operator(), self.dtype())
    }

    /// The name of its library's operators in torch.
    #[must_use]
    pub fn namespace(&self) -> String {
        format!("warpsmith_{}_{}", self.operator(), self.dtype())
    }

    /// Its entry of `swap.json`.
    #[must_use]
    pub fn json(&self) -> Value {
        let origin = self.found.origin();
        let (major, minor) = self.found.capability;
        let certified = self.interface.certified(&self.found.shapes);
        let axes: Map<String, Value> = certified.iter().map(|(axis, values)| (axis.clone(), values.json())).collect();
        let mut kernel = json!({
            "operator": self.operator(),
            "dtype": self.dtype(),
            "level": origin.level,
            "file": origin.file,
            "sha256": origin.sha256,
            "candidate": self.found.candidate.as_str(),
            "source": self.source(),
            "arguments": self.arrays(),
            "constraints": self.interface.constraints,
            "axes": axes,
            "capability": [major, minor],
            "alignment": ALIGNMENT,
            "functions": self.interface.entry.functions,
            "certificate": self.certificate(),
            "gate": { "verdict": origin.gate, "summary": self.found.gate() },
        });
        if let Some(chain) = &self.interface.entry.chain {
            kernel["chain"] = chain.clone();
            kernel["parts"] = self.parts().into();
            // The framework has no call of its own that would say with what a chain is compiled.
            kernel["flags"] = beyond(&self.interface.flags).into();
        }
        if self.is_run_time() {
            kernel["headers"] = self.headers().into();
            kernel["exported"] = self.exported().into();
            kernel["passed"] = self.interface.entry.passed.clone().into();
        } else {
            kernel["namespace"] = self.namespace().into();
            kernel["flags"] = self.interface.flags.clone().into();
            kernel["reasons"] = super::library::reasons(&self.interface).into();
        }
        kernel
    }

    /// The SHA-256 of each header that the file was compiled with, by its path: the task holds their texts.
    fn headers(&self) -> Map<String, Value> {
        let hashed = |(path, text): (&String, &String)| (path.clone(), Hash::of(text.as_bytes()).as_str().into());
        self.found.context().include.iter().map(hashed).collect()
    }

    /// Of a chain, the framework's files.
    fn parts(&self) -> Vec<String> {
        operator::named(self.operator()).and_then(|one| chain::files(&one)).unwrap_or_default()
    }

    /// Whether it does the work of several operators.
    #[must_use]
    pub fn is_chain(&self) -> bool {
        self.interface.entry.chain.is_some()
    }

    fn exported(&self) -> String {
        let dtype = match self.dtype() {
            "bf16" => "bf16_t",
            "fp16" => "fp16_t",
            _ => "fp32_t",
        };
        self.interface.exports.first().map(|export| export.replace("{T}", dtype)).unwrap_or_default()
    }

    /// The arrays by name, with their types and sizes.
    fn arrays(&self) -> Map<String, Value> {
        let declared = |argument: &Argument| {
            let said = json!({ "dtype": argument.dtype(self.dtype()), "shape": argument.shape });
            (argument.name.clone(), said)
        };
        self.interface.arrays().map(declared).collect()
    }

    fn certificate(&self) -> Value {
        let certificate = self.found.certificate.as_ref();
        let checked: Vec<String> = certificate
            .iter()
            .flat_map(|certificate| &certificate.checked)
            .map(|checked| {
                format!("{}: {}{}", if checked.done { "done" } else { "NOT DONE" }, checked.what, how(&checked.how))
            })
            .collect();
        let speedup = certificate.and_then(|certificate| match &certificate.verdict {
            CertificateVerdict::Certified(timed) => Some(timed.speedup.ratio),
            CertificateVerdict::Refused(_) => None,
        });
        json!({
            "summary": self.found.summary(),
            "certified": certificate.is_some(),
            "speedup": speedup,
            "machine": self.found.machine,
            "checked": checked,
            "build": certificate.map(|certificate| certificate.build.clone()),
        })
    }
}

/// What validation reads of an operator.
fn operator_json(interface: &Interface) -> Value {
    let argument = |argument: &Argument| {
        json!({
            "name": argument.name, "dtype": argument.dtype, "shape": argument.shape,
            "transfer": argument.transfer, "fill": argument.fill,
        })
    };
    json!({
        "call": interface.call,
        "arguments": interface.argument.iter().map(argument).collect::<Vec<_>>(),
        "between": interface.between.iter().map(argument).collect::<Vec<_>>(),
        "constraints": interface.constraints,
        "tolerance": interface.tolerance,
        "tests": interface.tests,
        "functions": interface.entry.functions,
        "loop": interface.case,
        "validation": interface.entry.validation,
    })
}

/// The flags that `load_jit` does not give by itself.
fn beyond(flags: &[String]) -> Vec<String> {
    flags.iter().filter(|flag| !LOAD_JIT.contains(&flag.as_str())).cloned().collect()
}

fn how(how: &str) -> String {
    if how.is_empty() { String::new() } else { format!(" ({how})") }
}

/// `swap.json`, whole.
#[must_use]
pub fn swap(kernels: &[Kernel]) -> Value {
    let operators: Map<String, Value> =
        kernels.iter().map(|kernel| (kernel.operator().to_owned(), operator_json(&kernel.interface))).collect();
    let shapes = |kernel: &Kernel| kernel.found.shapes.iter().map(said).collect::<BTreeSet<_>>();
    let certified: Map<String, Value> = kernels
        .iter()
        .map(|kernel| {
            let shapes = shapes(kernel).into_iter().collect::<Vec<_>>();
            (format!("{} {}", kernel.operator(), kernel.dtype()), shapes.into())
        })
        .collect();
    json!({
        "format": 1,
        "framework": "sglang",
        "version": kernels.first().map(|kernel| kernel.found.origin().version.clone()),
        "kernels": kernels.iter().map(Kernel::json).collect::<Vec<_>>(),
        "operators": operators,
        "shapes": certified,
    })
}

/// A shape in words: "tokens 16, hidden 4096".
fn said(case: &Case) -> String {
    let number = |number: &Number| match number {
        Number::Integer(value) => value.to_string(),
        Number::Float(value) => value.to_string(),
    };
    let parts: Vec<_> = case.scalars.iter().map(|(name, value)| format!("{name} {}", number(value))).collect();
    parts.join(", ")
}

/// Kernels that go into one export: of one version of the framework, and no two for one operator and type.
///
/// # Errors
///
/// If they are not, or one is in no language of a GPU.
pub fn together(kernels: &[Kernel]) -> Result<(), Error> {
    let mut seen = BTreeSet::new();
    for kernel in kernels {
        let (operator, dtype) = (kernel.operator(), kernel.dtype());
        if kernel.found.context().language != Language::Cuda {
            return Err(Error::request(format!("{operator}: its kernel is not in CUDA, so it cannot go back")));
        }
        if !seen.insert((operator, dtype)) {
            let why = "two kernels for it were named: export one of the runs";
            return Err(Error::request(format!("{operator} ({dtype}): {why}")));
        }
    }
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for kernel in kernels {
        versions.entry(&kernel.found.origin().version).or_default().insert(kernel.operator());
    }
    if versions.len() == 1 {
        return Ok(());
    }
    let each = versions.iter().map(|(version, operators)| {
        let flags: Vec<_> = operators.iter().map(|operator| format!("--op {operator}")).collect();
        format!("{version} ({})", flags.join(" "))
    });
    Err(Error::request(format!(
        "the kernels were taken out of different versions of sglang, and one export holds those of one: name them by version: {}",
        each.collect::<Vec<_>>().join("; or ")
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_is_compiled_with_what_its_parts_are() {
        let flags = |name: &str| beyond(&Interface::of(name).unwrap().flags);
        assert_eq!(flags("silu_and_mul_group_quant_fp8"), ["--use_fast_math"]);
        assert!(flags("qknorm_rope").is_empty());
        for chain in operator::all().into_iter().filter(|one| !one.parts.is_empty()) {
            let of_parts: BTreeSet<_> = chain.parts.iter().flat_map(|part| flags(part)).collect();
            assert_eq!(BTreeSet::from_iter(flags(&chain.name)), of_parts, "{}", chain.name);
        }
    }

    #[test]
    fn what_a_chains_calls_are_given_is_said() {
        let interface = Interface::of("silu_and_mul_group_quant_fp8").unwrap();
        let said = operator_json(&interface);
        let names = |value: &Value| -> Vec<String> {
            value.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
        };
        let known = [names(&said["arguments"]), names(&said["between"])].concat();
        let given = [&said["call"]["positional"], &said["call"]["then"][0]["positional"]];
        for name in given.into_iter().flat_map(|one| one.as_array().unwrap()) {
            assert!(known.iter().any(|one| one == name), "{name} of {known:?}");
        }
    }
}
