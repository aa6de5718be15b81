//! Calls of a library that a task forbids: the one definition, for a text, a linker's messages, a shared object and a
//! process's mappings.

use crate::result::{error::Attempt, failure::Failure};
use object::{Object, ObjectSymbol, read::elf::ElfFile64};
use serde::{Deserialize, Serialize};

/// What looks functions up while a program runs. Where a library is forbidden, these are too: what they find, nobody sees.
const LOADERS: [&str; 5] = ["dlopen", "dlmopen", "dlsym", "dlvsym", "__libc_dlopen_mode"];

/// A library that candidates may not use, by what shows its use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Forbidden {
    /// Its names for a linker: `openblas` is `libopenblas.so`.
    pub link: Vec<String>,
    /// Its functions; `*` stands for anything: `cblas_*`.
    pub symbols: Vec<String>,
    /// Its headers: `cblas.h`.
    pub include: Vec<String>,
    /// Its kernels on a GPU, as a profiler names them: `*cutlass*`. No task names any.
    #[serde(skip)]
    pub kernels: Vec<String>,
}

/// How a library is linked, its functions, its headers and its kernels.
type Names = (&'static [&'static str], &'static [&'static str], &'static [&'static str], &'static [&'static str]);

/// Libraries of kernels for GPUs: what is theirs is not a candidate's own work (Hawkeye §3).
const OF_GPUS: [Names; 6] = [
    (
        &["cublas", "cublasLt"],
        &["cublas*"],
        &["cublas_v2.h", "cublas.h", "cublasLt.h", "cublasXt.h"],
        &["*cublas*", "*xmma_gemm*", "*_s16816gemm_*", "*_sgemm_*", "nvjet_*", "gemv2*"],
    ),
    (&["cudnn"], &["cudnn*"], &["cudnn.h", "cudnn_frontend.h"], &["*cudnn*", "*xmma_fprop*", "*implicit_gemm*"]),
    (&[], &["cutlass::*", "cute::*"], &["cutlass/*", "cute/*"], &["*cutlass*", "*cute::*"]),
    (&[], &["cub::*", "thrust::*"], &["cub/*", "thrust/*"], &["*cub::*", "*thrust::*"]),
    (
        &["cusparse", "cusolver", "cufft"],
        &["cusparse*", "cusolver*", "cufft*"],
        &["cusparse.h", "cufft.h"],
        &["*cusparse*", "*cufft*"],
    ),
    (
        &["torch"],
        &["at::matmul", "at::mm", "at::bmm", "at::conv2d", "torch::matmul", "torch::mm", "torch::bmm", "torch::conv2d"],
        &[],
        &["*at::native::*", "triton_poi_*", "triton_red_*", "triton_per_*"],
    ),
];

/// A use of a library of kernels for GPUs, by a source's includes and names and by the kernels that it was seen to launch, in
/// words after "it"; `None` where nothing shows one.
#[must_use]
pub fn library_use(source: &str, kernels: &[String]) -> Option<String> {
    Forbidden::of_gpus().iter().find_map(|library| {
        let used = library.in_text(source).or_else(|| library.named_in(source)).or_else(|| library.in_kernels(kernels));
        used.map(|used| used.how)
    })
}

/// A use of a forbidden library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Use {
    /// What the library is called.
    pub(crate) library: String,
    /// What shows its use, after "it".
    pub(crate) how: String,
}

impl Forbidden {
    /// Whether nothing is forbidden.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn used(&self, how: String) -> Use {
        let first = self.link.iter().chain(&self.include).chain(&self.symbols).next();
        Use { library: first.cloned().unwrap_or_default(), how }
    }

    /// The libraries of kernels for GPUs.
    fn of_gpus() -> Vec<Self> {
        let all = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let of = |(link, symbols, include, kernels): &Names| Self {
            link: all(link),
            symbols: all(symbols),
            include: all(include),
            kernels: all(kernels),
        };
        OF_GPUS.iter().map(of).collect()
    }

    /// The use that a name in a source shows, comments left aside.
    fn named_in(&self, text: &str) -> Option<Use> {
        let part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
        let code = text.lines().map(|line| line.split("//").next().unwrap_or(line));
        let name = code.flat_map(|line| line.split(|c| !part(c))).find(|word| self.has_symbol(word));
        name.map(|name| self.used(format!("names {name}")))
    }

    /// The use that the names of kernels show which were launched.
    fn in_kernels(&self, kernels: &[String]) -> Option<Use> {
        let its = |name: &&String| self.kernels.iter().any(|pattern| matches(pattern, name));
        kernels.iter().find(its).map(|name| self.used(format!("launches {name}")))
    }

    /// What shows a use of the libraries of these names, as far as they are among those of kernels for GPUs: a task need not
    /// list what is known of them.
    pub(crate) fn known(link: &[String]) -> Vec<Self> {
        Self::of_gpus().into_iter().filter(|known| known.link.iter().any(|name| link.contains(name))).collect()
    }

    fn has_symbol(&self, name: &str) -> bool {
        self.symbols.iter().any(|pattern| matches(pattern, name))
    }

    /// The use that an `#include` shows.
    pub(crate) fn in_text(&self, text: &str) -> Option<Use> {
        let included = text.lines().filter_map(included).find(|path| {
            let file = path.rsplit('/').next().unwrap_or(path);
            self.include.iter().any(|header| matches(header, path) || header == file)
        });
        included.map(|path| self.used(format!("includes {path}")))
    }

    /// The use that a linker names which does not find a function.
    pub(crate) fn in_log(&self, log: &str) -> Option<Use> {
        let named = log.lines().filter_map(|line| line.split_once("undefined reference to ").map(|(_, name)| name));
        let bare = named.map(|name| name.trim_matches(|c: char| !c.is_ascii_alphanumeric() && c != '_'));
        let name = bare.map(|name| name.split(['(', '@']).next().unwrap_or(name)).find(|name| self.has_symbol(name));
        name.map(|name| self.used(format!("calls {name}")))
    }

    /// The use that a built object shows, linked or not: what it needs, what it leaves to be found, and what it names.
    pub(crate) fn in_object(&self, bytes: &[u8]) -> Option<Use> {
        let unreadable = || Some(self.used("is no object that can be read".to_owned()));
        let Ok(file) = ElfFile64::<object::Endianness>::parse(bytes) else { return unreadable() };
        let undefined = file.dynamic_symbols().chain(file.symbols()).filter(ObjectSymbol::is_undefined);
        let names: Vec<&str> = undefined.filter_map(|symbol| symbol.name().ok()).collect();
        let of = |wanted: &dyn Fn(&str) -> bool| names.iter().find(|name| wanted(name));
        if let Some(name) = of(&|name| self.has_symbol(name)) {
            return Some(self.used(format!("calls {name}")));
        }
        if let Some(name) = of(&|name| LOADERS.contains(&name)) {
            return Some(self.used(format!("looks functions up while it runs, by {name}")));
        }
        let file = |name: &&String| contains(bytes, format!("lib{name}.so").as_bytes());
        self.link.iter().find(file).map(|name| self.used(format!("names lib{name}.so")))
    }

    /// The use that the mappings of a process show, as `/proc/PID/maps` lists them.
    pub(crate) fn in_mappings(&self, maps: &str) -> Option<Use> {
        let files = maps.lines().filter_map(|line| line.find('/').and_then(|at| line[at..].rsplit('/').next()));
        let is_it = |file: &str| self.link.iter().any(|name| is_file_of(file, name));
        files.into_iter().find(|file| is_it(file)).map(|file| self.used(format!("has loaded {file}")))
    }
}

/// The failure of using one of these libraries, where a look at each shows it.
pub(crate) fn refuse(forbidden: &[Forbidden], look: impl Fn(&Forbidden) -> Option<Use>) -> Attempt<()> {
    match forbidden.iter().find_map(look) {
        Some(Use { library, how }) => Err(Failure::Library { library, how }.into()),
        None => Ok(()),
    }
}

/// Whether a file is this library: `libopenblas.so.0`, or `libopenblasp-r0.3.21.so`, which the former is a link to.
fn is_file_of(file: &str, library: &str) -> bool {
    let rest = file.strip_prefix("lib").and_then(|file| file.strip_prefix(library));
    rest.is_some_and(|rest| rest.contains(".so") && !rest.starts_with('_'))
}

/// What a line includes.
fn included(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix('#')?.trim_start().strip_prefix("include")?.trim_start();
    let rest = rest.strip_prefix(['<', '"'])?;
    rest.split(['>', '"']).next()
}

/// Whether a name is what a pattern says, in which `*` stands for anything.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(behind) = name.strip_prefix(start) else { return false };
    (0..=behind.len()).filter(|at| behind.is_char_boundary(*at)).any(|at| matches(rest, &behind[at..]))
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|part| part == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blas() -> Forbidden {
        let all = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        let (link, include) = (all(&["openblas"]), all(&["cblas.h"]));
        Forbidden { link, symbols: all(&["cblas_*", "sgemm_"]), include, ..Forbidden::default() }
    }

    fn how(found: Option<Use>) -> String {
        found.map_or_else(String::new, |found| format!("{}: {}", found.library, found.how))
    }

    #[test]
    fn an_include_shows_a_use_and_a_comment_does_not() {
        for text in ["#include <cblas.h>", "  # include \"openblas/cblas.h\"\n"] {
            assert!(how(blas().in_text(text)).starts_with("openblas: includes"), "{text}");
        }
        for text in ["// #include <cblas.h>", "#include <cstdint>", "int cblas;", "#include \"mycblas.h\""] {
            assert_eq!(how(blas().in_text(text)), "", "{text}");
        }
    }

    #[test]
    fn a_kernel_that_takes_its_work_from_a_library_of_a_gpu_is_told_by_includes_names_and_what_it_launches() {
        let used = |source: &str, kernels: &[&str]| {
            let kernels: Vec<String> = kernels.iter().map(|name| (*name).to_owned()).collect();
            library_use(source, &kernels).unwrap_or_default()
        };
        assert_eq!(used("#include <cutlass/gemm/device/gemm.h>", &[]), "includes cutlass/gemm/device/gemm.h");
        assert_eq!(used("#include <cublas_v2.h>", &[]), "includes cublas_v2.h");
        assert_eq!(used("extern \"C\" int cublasSgemm_v2(void*);", &[]), "names cublasSgemm_v2");
        assert_eq!(used("auto c = torch::matmul(a, b);", &[]), "names torch::matmul");
        for kernel in [
            "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64",
            "void cutlass::Kernel2<cutlass_80_tensorop>(P)",
            "nvjet_tst_128x256_64x4_2x1_v_bz_coopA_NNT",
            "void at::native::vectorized_elementwise_kernel<4>(int)",
        ] {
            assert_eq!(used("torch.mm(x, y)", &[kernel]), format!("launches {kernel}"));
        }
        let own = "#include <cuda.h>\n// cublasSgemm does the same\n__global__ void scores(at::Tensor x) {}";
        assert_eq!(used(own, &["void (anonymous namespace)::scores(float*)"]), "");
    }

    #[test]
    fn a_function_that_the_linker_does_not_find_shows_a_use() {
        let log = "/usr/bin/ld: unit.cpp:(.text+0x2f): undefined reference to `cblas_sgemm'\ncollect2: error";
        assert_eq!(how(blas().in_log(log)), "openblas: calls cblas_sgemm");
        assert_eq!(how(blas().in_log("undefined reference to `helper(int)'")), "");
        assert_eq!(how(blas().in_log("undefined reference to `sgemm_'")), "openblas: calls sgemm_");
        assert_eq!(how(blas().in_log("undefined reference to `my_sgemm_'")), "");
    }

    #[test]
    fn a_mapped_file_shows_a_use_under_each_of_the_library_s_names() {
        let line = |file: &str| format!("7f00-7f01 r-xp 00000000 08:01 42  /usr/lib/x86_64-linux-gnu/{file}\n");
        for file in ["libopenblas.so.0", "libopenblasp-r0.3.21.so", "openblas-pthread/libopenblas.so"] {
            assert!(how(blas().in_mappings(&line(file))).contains("has loaded libopenblas"), "{file}");
        }
        assert_eq!(how(blas().in_mappings(&format!("{}7ffe [stack]\n", line("libc.so.6")))), "");
    }

    #[test]
    fn an_object_that_looks_functions_up_or_cannot_be_read_is_none_that_is_allowed() {
        let own = std::fs::read("/proc/self/exe").unwrap();
        assert!(
            how(blas().in_object(&own)).contains("looks functions up while it runs"),
            "{}",
            how(blas().in_object(&own))
        );
        assert!(how(blas().in_object(b"text")).contains("no object that can be read"));
    }
}
