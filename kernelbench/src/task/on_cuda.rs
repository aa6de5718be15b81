//! Kernels in HIP on an NVIDIA GPU: the same texts, behind a header that has CUDA's functions by HIP's names. What is found out so
//! is whether a kernel is right, and nothing of its speed on an AMD GPU.

use super::{Language, Source, Task};
use crate::{build::flags, result::candidate::Candidate};

/// What stands before the reference and before each candidate, whose lines are counted from behind it.
const FIRST: &str = "#include <hip/hip_runtime.h>\n#line 1\n";
/// What that includes, and what a candidate may.
const HEADERS: [(&str, &str); 3] = [
    ("hip/hip_runtime.h", include_str!("../../harness/hip/on_cuda.h")),
    ("hip/hip_fp16.h", include_str!("../../harness/hip/hip_fp16.h")),
    ("hip/coordinates.h", include_str!("../../harness/hip/coordinates.h")),
];

impl Task {
    /// A task in HIP as one in CUDA, for candidates of [`Candidate::on_cuda`].
    ///
    /// # Errors
    /// In words, where it is none in HIP, or has a flag that nvcc may not be given.
    pub fn on_cuda(mut self) -> Result<Self, String> {
        let why = format!("{} is not in HIP: a kernel in another language runs where it is for", self.name);
        let Source::Context(context) = &mut self.source else { return Err(why) };
        if context.language != Language::Hip {
            return Err(why);
        }
        if let Some(flag) = context.flags.iter().find(|flag| !flags::is_harmless_in_cuda(flag)) {
            return Err(format!("its flag `{flag}` is none of nvcc's: {}", flags::CUDA_EXPECTED));
        }
        (context.language, context.arch) = (Language::Cuda, None);
        context.include = HEADERS.map(|(path, text)| (path.to_owned(), text.to_owned())).into();
        for reference in [Some(&mut context.reference), context.initial.as_mut()].into_iter().flatten() {
            reference.insert_str(0, FIRST);
        }
        Ok(self)
    }
}

impl Candidate {
    /// A candidate in HIP as one in CUDA, for a task of [`Task::on_cuda`].
    #[must_use]
    pub fn on_cuda(&self) -> Self {
        let mut parts = self.parts().to_vec();
        if let Some(first) = parts.first_mut().filter(|first| !first.text.starts_with(FIRST)) {
            first.text.insert_str(0, FIRST);
        }
        Self::of_parts(parts).bound(self.bindings().clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load;
    use std::path::Path;

    #[test]
    fn a_task_in_hip_becomes_one_in_cuda_and_no_other_does() {
        let task = |folder: &str| load::task(&Path::new("../examples").join(folder)).unwrap();
        let hip = task("hip/matmul_fp32");
        let cuda = hip.clone().on_cuda().unwrap();
        assert!(cuda.is_cuda() && cuda.gfx().is_none() && hip.gfx().is_some());
        assert!(cuda.reference().starts_with(FIRST) && cuda.reference().ends_with(hip.reference()));
        let mut flagged = hip.clone();
        let Source::Context(context) = &mut flagged.source else { panic!("it is a context") };
        context.flags = vec!["-O2".into(), "-mllvm".into()];
        assert!(flagged.on_cuda().unwrap_err().contains("its flag `-mllvm` is none of nvcc's"));
        let bound = hip.initial_context().unwrap().bound([("BLOCK_X".to_owned(), "16".into())].into());
        assert_eq!(bound.on_cuda().bindings(), bound.bindings());
        assert_eq!(bound.on_cuda().on_cuda(), bound.on_cuda());
        let why = task("cuda/matmul_fp32").on_cuda().unwrap_err();
        assert!(why.starts_with("matmul_fp32 is not in HIP"), "{why}");
    }
}
