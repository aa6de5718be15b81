//! Code objects: what a compiler says of kernels for a GPU that is not here, in the place of times.
//!
//! A type of its own, from which no time, no rate and no speedup follows, and which no certificate holds. Nobody knows whether
//! its kernels are right, for nothing ran.

use crate::task::gfx::Gfx;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};

/// What a candidate's kernels take of an AMD GPU, as its compiler says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeObject {
    /// The architecture that it was compiled for.
    pub arch: Gfx,
    /// Each kernel.
    pub kernels: Vec<KernelCode>,
}

/// What one kernel takes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelCode {
    /// Its symbol.
    pub name: String,
    /// Vector registers of a lane, those for accumulation among them.
    pub vgprs: u64,
    /// Vector registers for accumulation.
    pub agprs: u64,
    /// Scalar registers of a wavefront.
    pub sgprs: u64,
    /// Vector registers that were spilled.
    pub vgpr_spills: u64,
    /// Scalar registers that were spilled.
    pub sgpr_spills: u64,
    /// LDS of a thread block, in bytes, beside what a launch adds.
    pub lds_bytes: u64,
    /// Memory of a thread for what found no register, in bytes.
    pub scratch_bytes: u64,
    /// Matrix instructions that the compiler wrote into its code: not those of functions that were kept apart from it, and not
    /// those of inline assembly.
    pub mfma: u64,
}

impl CodeObject {
    /// Reads a compiler's assembly: the metadata at its end, which becomes the code object's note, and the instructions.
    ///
    /// # Errors
    /// In a sentence: which figure is missing of which kernel, or which kernel has no code of the compiler's.
    pub(crate) fn of_assembly(arch: Gfx, text: &str) -> Result<Self, String> {
        let (code, metadata) = text.rsplit_once("\t.amdgpu_metadata\n").unwrap_or((text, ""));
        let code = outside_inline_assembly(code);
        let mut kernels: Vec<Figures<'_>> = vec![];
        let listed = metadata.lines().skip_while(|line| *line != "amdhsa.kernels:").skip(1);
        for line in listed.take_while(|line| line.starts_with(' ')) {
            // The list's items begin with a dash; what stands deeper describes arguments.
            let key = match line.strip_prefix("  - ") {
                Some(first) => {
                    kernels.push(Figures::new());
                    first
                }
                None => line.strip_prefix("    ").unwrap_or_default(),
            };
            let (Some(kernel), Some((key, value))) = (kernels.last_mut(), key.split_once(':')) else { continue };
            kernel.insert(key, value.trim());
        }
        let kernels = kernels.iter().map(|figures| KernelCode::of(figures, &code)).collect::<Result<_, _>>()?;
        Ok(Self { arch, kernels })
    }
}

/// What the metadata says of one kernel, as text.
type Figures<'a> = BTreeMap<&'a str, &'a str>;

impl KernelCode {
    fn of(figures: &Figures<'_>, code: &[&str]) -> Result<Self, String> {
        let name = figures.get(".name").ok_or("a kernel in the compiler's metadata has no .name")?;
        let name = name.trim_matches('\'').to_owned();
        let figure = |key: &str| {
            let number = figures.get(key).and_then(|value| value.parse().ok());
            number.ok_or_else(|| format!("the compiler's metadata of the kernel {name} has no number as {key}"))
        };
        let begins = format!("{name}:");
        let at = code.iter().position(|line| line.starts_with(&begins));
        let at = at.ok_or_else(|| format!("the kernel {name} has metadata, and no code of the compiler's"))?;
        let own = code[at..].iter().take_while(|line| !line.starts_with(".Lfunc_end"));
        Ok(Self {
            vgprs: figure(".vgpr_count")?,
            agprs: figure(".agpr_count")?,
            sgprs: figure(".sgpr_count")?,
            vgpr_spills: figure(".vgpr_spill_count")?,
            sgpr_spills: figure(".sgpr_spill_count")?,
            lds_bytes: figure(".group_segment_fixed_size")?,
            scratch_bytes: figure(".private_segment_fixed_size")?,
            mfma: own.filter_map(|line| line.split_whitespace().next()).filter(|word| is_matrix(word)).count() as u64,
            name,
        })
    }

    /// Its name in the source, where the symbol says one.
    #[must_use]
    pub fn source_name(&self) -> &str {
        let mut rest = self.name.strip_prefix("_Z").unwrap_or(&self.name);
        let mut name = self.name.as_str();
        // Names within namespaces stand one behind the other, each after its length.
        rest = rest.strip_prefix('N').unwrap_or(rest);
        loop {
            rest = rest.strip_prefix('L').unwrap_or(rest);
            let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let Some(length) = rest.get(..digits).and_then(|length| length.parse::<usize>().ok()) else { return name };
            let Some(found) = rest.get(digits..digits.saturating_add(length)) else { return name };
            (name, rest) = (found, &rest[digits + length..]);
        }
    }
}

/// The lines that the compiler wrote itself. Between its marks stands inline assembly, which may hold comments, parts that are
/// left out, and labels of its author's.
fn outside_inline_assembly(assembly: &str) -> Vec<&str> {
    let mut inside = false;
    let mut is_own = |line: &&str| {
        let mark = line.trim();
        inside = (inside || mark == ";;#ASMSTART" || mark == ";#ASMSTART") && !mark.ends_with("#ASMEND");
        !inside && !mark.ends_with("#ASMEND")
    };
    assembly.lines().filter(|line| is_own(line)).collect()
}

/// The names of all instructions that the compiler wrote, a line each; directives and labels are none.
pub(crate) fn instructions(assembly: &str) -> String {
    let words = outside_inline_assembly(assembly).into_iter().filter_map(|line| line.strip_prefix('\t'));
    let names = words.filter_map(|line| line.split_whitespace().next()).filter(|word| !word.starts_with(['.', ';']));
    names.flat_map(|name| [name, "\n"]).collect()
}

fn is_matrix(instruction: &str) -> bool {
    instruction.starts_with("v_mfma_") || instruction.starts_with("v_smfmac_")
}

/// What stands wherever a time would.
impl fmt::Display for CodeObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kernels: Vec<String> = self.kernels.iter().map(ToString::to_string).collect();
        let kernels = if kernels.is_empty() { "no kernel".to_owned() } else { kernels.join("; ") };
        write!(f, "compiled, not run, for {}: {kernels}", self.arch)
    }
}

impl fmt::Display for KernelCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { vgprs, agprs, sgprs, vgpr_spills, sgpr_spills, lds_bytes, scratch_bytes, mfma, .. } = self;
        write!(
            f,
            "{} with {vgprs} VGPRs ({agprs} AGPRs among them), {sgprs} SGPRs, {vgpr_spills} + {sgpr_spills} spilled, \
             {lds_bytes} B of LDS, {scratch_bytes} B of scratch, {mfma} MFMA",
            self.source_name()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASSEMBLY: &str = "
_Z3twoPf:                               ; @_Z3twoPf
\tv_mfma_f32_32x32x8_f16 a[0:15], v[2:3], v[4:5], a[0:15]
\t; v_mfma_f32_32x32x8_f16 in a comment
\tv_smfmac_f32_16x16x32_f16 a[0:3], v[2:3], v[4:7], v1
\t;;#ASMSTART
_ZN12_GLOBAL__N_13oneEv:
\t.if 0
\tv_mfma_f32_32x32x8_f16 a[0:15], v[2:3], v[4:5], a[0:15]
\t.endif
\t;;#ASMEND
.Lfunc_end0:
_ZN12_GLOBAL__N_13oneEv:
\ts_endpgm
\t.amdgpu_metadata
---
amdhsa.kernels:
  - .agpr_count:     99
\t.end_amdgpu_metadata
.Lfunc_end1:
\t.amdgpu_metadata
---
amdhsa.kernels:
  - .agpr_count:     16
    .args:
      - .name:           c
        .size:           8
    .group_segment_fixed_size: 1024
    .name:           _Z3twoPf
    .private_segment_fixed_size: 12
    .sgpr_count:     15
    .sgpr_spill_count: 1
    .vgpr_count:     24
    .vgpr_spill_count: 2
  - .agpr_count:     0
    .group_segment_fixed_size: 0
    .name:           _ZN12_GLOBAL__N_13oneEv
    .private_segment_fixed_size: 0
    .sgpr_count:     6
    .sgpr_spill_count: 0
    .vgpr_count:     1
    .vgpr_spill_count: 0
amdhsa.target:   amdgcn-amd-amdhsa--gfx942
amdhsa.version:
  - 1
  - 2
...
\t.end_amdgpu_metadata
";

    #[test]
    fn each_kernel_has_its_own_figures_and_what_a_candidate_writes_as_metadata_is_not_read() {
        let found = CodeObject::of_assembly(Gfx::Gfx942, ASSEMBLY).unwrap();
        let [two, one] = &found.kernels[..] else { panic!("{found}") };
        let expected = KernelCode {
            name: "_Z3twoPf".into(),
            vgprs: 24,
            agprs: 16,
            sgprs: 15,
            vgpr_spills: 2,
            sgpr_spills: 1,
            lds_bytes: 1024,
            scratch_bytes: 12,
            mfma: 2,
        };
        assert_eq!((two, one.mfma, one.source_name()), (&expected, 0, "one"));
        assert!(found.to_string().starts_with("compiled, not run, for gfx942: two with 24 VGPRs (16 AGPRs among"));
    }

    #[test]
    fn instructions_are_those_that_the_compiler_wrote() {
        assert_eq!(instructions(ASSEMBLY), "v_mfma_f32_32x32x8_f16\nv_smfmac_f32_16x16x32_f16\ns_endpgm\n");
    }

    #[test]
    fn a_figure_or_code_that_is_missing_is_no_zero_but_told_with_its_kernel_and_key() {
        let told = |from: &str, to: &str| {
            let changed = ASSEMBLY.replacen(from, to, 1);
            assert_ne!(changed, ASSEMBLY);
            CodeObject::of_assembly(Gfx::Gfx942, &changed).unwrap_err()
        };
        let none = "the compiler's metadata of the kernel _Z3twoPf has no number as .sgpr_count";
        assert_eq!(told("    .sgpr_count:     15\n", ""), none);
        assert_eq!(told(".sgpr_count:     15", ".sgpr_count:     many"), none);
        assert_eq!(told("    .name:           _Z3twoPf\n", ""), "a kernel in the compiler's metadata has no .name");
        // A label in inline assembly is none of the compiler's.
        let told = told(";;#ASMEND\n.Lfunc_end0:\n_ZN12_GLOBAL__N_13oneEv:", ";;#ASMEND\n.Lfunc_end0:\n");
        assert_eq!(told, "the kernel _ZN12_GLOBAL__N_13oneEv has metadata, and no code of the compiler's");
    }
}
