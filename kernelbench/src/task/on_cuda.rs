//! Kernels in HIP on an NVIDIA GPU: the same texts, behind a header that has CUDA's functions by HIP's names. What is found out so
//! is whether a kernel is right, and nothing of its speed on an AMD GPU.

use super::{Language, Source, Task};
use crate::{build::flags::CUDA_DEFAULT, result::candidate::Candidate};

/// What stands before the reference and before each candidate.
const FIRST: &str = "#include <hip/hip_runtime.h>\n";
/// What that includes, and what a candidate may.
const HEADERS: [(&str, &str); 2] = [
    ("hip/hip_runtime.h", include_str!("../../harness/hip/on_cuda.h")),
    ("hip/hip_fp16.h", include_str!("../../harness/hip/hip_fp16.h")),
];

impl Task {
    /// A task in HIP as one in CUDA, for candidates of [`Candidate::on_cuda`].
    ///
    /// # Errors
    /// In words, where it is none in HIP.
    pub fn on_cuda(mut self) -> Result<Self, String> {
        let why = format!("{} is not in HIP: a kernel in another language runs where it is for", self.name);
        let Source::Context(context) = &mut self.source else { return Err(why) };
        if context.language != Language::Hip {
            return Err(why);
        }
        (context.language, context.arch) = (Language::Cuda, None);
        context.flags = CUDA_DEFAULT.map(str::to_owned).to_vec();
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
        self.with_import(FIRST).bound(self.bindings().clone())
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
        let bound = hip.initial_context().unwrap().bound([("BLOCK_X".to_owned(), "16".into())].into());
        assert_eq!(bound.on_cuda().bindings(), bound.bindings());
        assert_eq!(bound.on_cuda().on_cuda(), bound.on_cuda());
        let why = task("cuda/matmul_fp32").on_cuda().unwrap_err();
        assert!(why.starts_with("matmul_fp32 is not in HIP"), "{why}");
    }
}
