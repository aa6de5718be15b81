//! A task of one sentence: what it says, and the folder that a template makes of it (QiMeng-TensorOp §3.1).

mod layer;
mod library;
mod reading;
mod sentence;

pub use library::{OpenBlas, has_cublas, has_cudnn};
pub use reading::{filled, sayable, words};
pub use sentence::{Hardware, Precision, Said};

use kernelbench::Processor;
use minijinja::{Environment, Value, context, syntax::SyntaxConfig};
use std::collections::BTreeMap;

/// An operator that there is a template for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// A matrix product.
    Gemm,
    /// A convolution of images.
    Conv2d,
}

/// The files of a task's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// `task.toml`.
    pub task: String,
    /// The reference's file name.
    pub reference: String,
    /// The reference.
    pub source: String,
    /// The source of its baselines: file name and text.
    pub baseline: Option<(String, String)>,
    /// What was chosen because the sentence does not say it.
    pub chosen: Vec<String>,
}

/// What this machine has.
#[derive(Clone, Copy, Debug, Default)]
pub struct Here {
    /// Its memory in bytes, where the operator runs on its processor.
    pub memory: Option<u64>,
    /// `OpenBLAS`, where a linker finds it.
    pub openblas: Option<OpenBlas>,
    /// Whether its CUDA toolkit has cuBLAS.
    pub cublas: bool,
    /// Whether cuDNN is here.
    pub cudnn: bool,
}

impl Operator {
    /// The sizes that it has to be told.
    #[must_use]
    pub fn needs(self) -> &'static [&'static str] {
        match self {
            Self::Gemm => &["m", "n", "k"],
            Self::Conv2d => &["batch", "channels", "height", "width", "filters", "rows", "columns", "stride", "pad"],
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Gemm => "gemm",
            Self::Conv2d => "conv2d",
        }
    }

    /// The template of the task file, and those of the reference on a processor and on a GPU.
    fn templates(self) -> [&'static str; 3] {
        match self {
            Self::Gemm => [
                include_str!("ask/templates/gemm.toml"),
                include_str!("ask/templates/gemm.cpp"),
                include_str!("ask/templates/gemm.cu"),
            ],
            Self::Conv2d => [
                include_str!("ask/templates/conv2d.toml"),
                include_str!("ask/templates/conv2d.cpp"),
                include_str!("ask/templates/conv2d.cu"),
            ],
        }
    }

    /// How `OpenBLAS` computes it.
    fn by_openblas(self) -> &'static str {
        match self {
            Self::Gemm => "OpenBLAS",
            Self::Conv2d => "im2col and OpenBLAS",
        }
    }

    /// How many arithmetic operations a call takes.
    fn operations(self, sizes: &BTreeMap<String, i64>) -> f64 {
        let size = |name: &str| sizes.get(name).map_or(0.0, |size| *size as f64);
        let product = |names: &[&str]| names.iter().map(|name| size(name)).product::<f64>();
        match self {
            Self::Gemm => 2.0 * product(&["m", "n", "k"]),
            Self::Conv2d => {
                let out = |image: &str, filter: &str| {
                    ((size(image) + 2.0 * size("pad") - size(filter)) / size("stride")).floor() + 1.0
                };
                let pixels = out("height", "rows") * out("width", "columns");
                2.0 * pixels * product(&["batch", "filters", "channels", "rows", "columns"])
            }
        }
    }

    /// Elements of all arrays, and products in a sum; none where that is too much to count.
    fn counts(self, sizes: &BTreeMap<String, i64>) -> Option<(i64, i64)> {
        let size = |name: &str| sizes.get(name).copied();
        match self {
            Self::Gemm => {
                let (m, n, k) = (size("m")?, size("n")?, size("k")?);
                let all = m.checked_mul(n)?.checked_add(m.checked_mul(k)?)?.checked_add(k.checked_mul(n)?)?;
                Some((all, k))
            }
            Self::Conv2d => {
                let product = |names: &[&str]| names.iter().try_fold(1_i64, |all, name| all.checked_mul(size(name)?));
                let image = product(&["batch", "channels", "height", "width"])?;
                let filters = product(&["filters", "channels", "rows", "columns"])?;
                // No output is larger than the padded image for each filter.
                let out = product(&["batch", "filters", "height", "width"])?;
                let all = image.checked_add(filters)?.checked_add(out)?;
                Some((all, product(&["channels", "rows", "columns"])?))
            }
        }
    }
}

/// The folder of a sentence that lacks nothing.
///
/// # Errors
/// In a sentence: a size that is none, more than the memory, or a precision that there is no template for.
pub fn made(sentence: &str, said: &Said, here: &Here) -> Result<Made, String> {
    let (Some(operator), Some(hardware)) = (said.operator, &said.hardware) else {
        return Err(said.questions().join(" "));
    };
    let gpu = hardware.is_gpu();
    if let Some(word) = &said.foreign {
        return Err(format!("there is no template in {word}: name single precision (fp32), or on a GPU half (fp16)"));
    }
    let mut chosen = vec![];
    let usual = if said.tensor_cores { Precision::Fp16 } else { Precision::Fp32 };
    let precision = said.precision.unwrap_or(usual);
    if said.precision.is_none() {
        let words = if precision == Precision::Fp16 {
            "half precision with sums in single, for tensor cores"
        } else {
            "single precision"
        };
        chosen.push(format!("precision: {words}, because the sentence names none"));
    }
    if precision == Precision::Fp16 && !gpu {
        return Err("half precision has a template on GPUs alone: name a GPU, or single precision".to_owned());
    }
    let processor = emulated(hardware)?;
    chosen.extend(processor.map(|processor| {
        format!("processor: {}, emulated: instructions are counted, nothing is timed", processor.full_name())
    }));
    let sums = checked(operator, said, precision, here.memory)?;
    let library = library(operator, hardware, here);
    chosen.extend(library.map(|library| library.compared(operator)));
    let processor = processor.map(Processor::name);
    let rows = context! { ..context! { processor }, ..values(operator, sentence, said, precision, gpu, sums), ..baselines(library, operator, said) };
    let [task, cpu, cuda] = operator.templates();
    let (source, ending) = if gpu { (cuda, "cu") } else { (cpu, "cpp") };
    let render = |text: &str| rendered(text, &rows);
    let baseline = match library.and_then(|library| library.source(operator)) {
        Some((file, text)) => Some((file.to_owned(), render(text)?)),
        None => None,
    };
    let reference = format!("reference.{ending}");
    Ok(Made { task: render(task)?, reference, source: render(source)?, baseline, chosen })
}

/// The processor that is emulated, where the sentence names one that is not here.
fn emulated(hardware: &Hardware) -> Result<Option<Processor>, String> {
    match hardware {
        // A kind of which this machine may be one.
        Hardware::Named(name) if !hardware.is_gpu() && name != "epyc" => name.parse().map(Some),
        _ => Ok(None),
    }
}

/// What an operator is compared with.
#[derive(Clone, Copy)]
enum Library {
    OpenBlas(OpenBlas),
    Cublas,
    Cudnn,
    /// Those of the hardware are not here.
    NoOpenBlas,
    NoCublas,
    NoCudnn,
}

/// The library of an operator on this hardware; none for what there is no library for.
fn library(operator: Operator, hardware: &Hardware, here: &Here) -> Option<Library> {
    match hardware {
        Hardware::ThisCpu => Some(here.openblas.map_or(Library::NoOpenBlas, Library::OpenBlas)),
        hardware if hardware.is_gpu() => Some(match operator {
            Operator::Gemm if here.cublas => Library::Cublas,
            Operator::Gemm => Library::NoCublas,
            Operator::Conv2d if here.cudnn => Library::Cudnn,
            Operator::Conv2d => Library::NoCudnn,
        }),
        _ => None,
    }
}

impl Library {
    /// Its file's name and template.
    fn source(self, operator: Operator) -> Option<(&'static str, &'static str)> {
        match self {
            Self::OpenBlas(_) => Some(match operator {
                Operator::Gemm => ("openblas.cpp", include_str!("ask/templates/gemm-openblas.cpp")),
                Operator::Conv2d => ("openblas.cpp", include_str!("ask/templates/conv2d-openblas.cpp")),
            }),
            Self::Cublas => Some(("cublas.cu", include_str!("ask/templates/gemm-cublas.cu"))),
            Self::Cudnn => Some(("cudnn.cu", include_str!("ask/templates/conv2d-cudnn.cu"))),
            Self::NoOpenBlas | Self::NoCublas | Self::NoCudnn => None,
        }
    }

    /// Operations beyond which the reference takes seconds, or on a GPU tenths of one.
    fn large(self) -> f64 {
        if matches!(self, Self::Cublas | Self::Cudnn) { 5e11 } else { 1e9 }
    }

    /// The baseline that speedups are over, by its name in the task: the library's strongest form.
    fn against(self) -> Option<String> {
        match self {
            Self::OpenBlas(OpenBlas { core: Some(core) }) => Some(format!("openblas-{}", core.to_lowercase())),
            Self::OpenBlas(_) => Some("openblas".to_owned()),
            Self::Cublas => Some("cublas".to_owned()),
            Self::Cudnn => Some("cudnn".to_owned()),
            Self::NoOpenBlas | Self::NoCublas | Self::NoCudnn => None,
        }
    }

    /// What its user is told.
    fn compared(self, operator: Operator) -> String {
        let openblas = operator.by_openblas();
        let over = self.against().unwrap_or_else(|| "the reference".to_owned());
        let with = match self {
            Self::OpenBlas(OpenBlas { core: Some(core) }) => {
                format!("{openblas} on one core, as it comes and with its kernels for {core}")
            }
            Self::OpenBlas(_) => format!("{openblas} on one core"),
            Self::Cublas => "cuBLAS".to_owned(),
            Self::Cudnn => "cuDNN, by the quickest of its algorithms".to_owned(),
            Self::NoOpenBlas => "none, because OpenBLAS is not here (Debian: apt install libopenblas-dev)".to_owned(),
            Self::NoCublas => "none, because this machine's CUDA toolkit has no cuBLAS".to_owned(),
            Self::NoCudnn => {
                "none, because cuDNN is not here (pip install nvidia-cudnn-cu13; CUDNN_PATH names its folder)"
                    .to_owned()
            }
        };
        format!("baselines: {with}; speedups are over {over}")
    }
}

fn baselines(library: Option<Library>, operator: Operator, said: &Said) -> Value {
    let Some((library, against)) = library.and_then(|library| Some((library, library.against()?))) else {
        return context! {};
    };
    let large = operator.operations(&said.sizes) > library.large();
    let core = if let Library::OpenBlas(openblas) = library { openblas.core } else { None };
    context! { against, core, large, library => operator.by_openblas(), cublas => matches!(library, Library::Cublas), cudnn => matches!(library, Library::Cudnn) }
}

/// Whether the sizes are such, and fit; products in a sum.
fn checked(operator: Operator, said: &Said, precision: Precision, memory: Option<u64>) -> Result<i64, String> {
    for (name, value) in said.sizes.iter().filter(|(name, _)| operator.needs().contains(&name.as_str())) {
        let least = i64::from(name != "pad");
        if *value < least {
            return Err(format!("{name} is {value}: expected {least} or more"));
        }
    }
    if operator == Operator::Conv2d {
        let size = |name: &str| said.sizes.get(name).copied().unwrap_or(0);
        for (image, filter) in [("height", "rows"), ("width", "columns")] {
            if size(image) + 2 * size("pad") < size(filter) || size("pad") > 1 << 20 {
                return Err(format!(
                    "{filter} is {}, more than the padded image has: {image} is {}",
                    size(filter),
                    size(image)
                ));
            }
        }
    }
    let (elements, sums) = operator.counts(&said.sizes).ok_or("the sizes are beyond any memory")?;
    let bytes = elements as u64 * if precision == Precision::Fp16 { 2 } else { 4 };
    // The reference, the candidate and the comparison have arrays of their own.
    match memory.filter(|memory| bytes.saturating_mul(3) > *memory) {
        Some(memory) => Err(format!(
            "its arrays take {:.1} GiB, three times that while two kernels are compared; this machine has {:.1} GiB",
            bytes as f64 / f64::from(1 << 30),
            memory as f64 / f64::from(1 << 30)
        )),
        None => Ok(sums),
    }
}

/// What counts as single precision on a GPU, for whoever writes the kernel. By a reckoning with 4096 products of numbers in
/// [-1, 1), sums of TF32 are 230 times as far from double precision as sums in single precision one after another, of three BF16
/// products 3 times, and of three TF32 products with every sum cut off 33 times (largest error: twice the tolerance).
const PLAIN_SINGLE: &str = " Products and sums are in single precision, by its tolerance: one product in TF32 is too coarse. \
    Tensor cores are welcome within it, with each operand split into two TF32 or BF16 parts or more, whose products are added up; \
    their own sums are cut off and not rounded, so that long ones have to be moved into a second accumulator every so often. \
    Operands may hold any number of single precision: nothing may rest on the range that happens to be drawn.";
/// How far operands' numbers reach where they would else reach 1: beyond half precision, whose parts are no split of single
/// precision.
const REACH: i64 = 1 << 20;

fn values(operator: Operator, sentence: &str, said: &Said, precision: Precision, gpu: bool, sums: i64) -> Value {
    let half = precision == Precision::Fp16;
    let asked: Vec<String> =
        operator.needs().iter().map(|name| said.sizes.get(*name).map_or(0, |n| *n).to_string()).collect();
    let plain: String = sentence.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let reach = if gpu && !half { REACH } else { 1 };
    // Sums in single precision in another order differ by about 7e-8 a product, the largest of millions, and with TF32 by 2e-6
    // and more; in half precision by a step, except near zero.
    let atol = if half {
        (6.25e-5 * (sums as f64).sqrt()).max(1e-3)
    } else {
        (4e-7 * sums as f64).max(2e-5) * (reach * reach) as f64
    };
    let note = if half {
        " Products are summed in single precision."
    } else if gpu {
        PLAIN_SINGLE
    } else {
        ""
    };
    let base = context! {
        sentence => plain,
        name => format!("{}-{}", operator.name(), asked.join("x")).chars().take(64).collect::<String>(),
        words => if half { "in half precision" } else { "in single precision" },
        note,
        language => if gpu { "cuda" } else { "c++17" },
        ending => if gpu { "cu" } else { "cpp" },
        dtype => if half { "f16" } else { "f32" },
        element => if half { "__half" } else { "float" },
        atol => format!("{atol:e}"),
        reach,
        // 2^-10 is a step of half precision.
        rtol => if half { "0.0009765625" } else { "1e-5" },
        half,
    };
    let sizes: Value =
        said.sizes.iter().map(|(name, value)| (name.clone(), Value::from(*value))).collect::<BTreeMap<_, _>>().into();
    context! { ..base, ..sizes }
}

fn rendered(text: &str, values: &Value) -> Result<String, String> {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).keep_trailing_newline(true).build();
    environment.set_syntax(syntax.map_err(|why| why.to_string())?);
    let wrong = |why: minijinja::Error| format!("a template of the program is wrong: {why}");
    environment.add_template("baselines.toml", include_str!("ask/templates/baselines.toml")).map_err(wrong)?;
    environment.render_str(text, values).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_sizes_are_told_in_one_sentence() {
        for (sentence, why) in [
            ("GEMM with m=0 n=1024 k=1024 on this CPU", "m is 0: expected 1 or more"),
            ("GEMM with m=-5 n=1024 k=1024 on this CPU", "m is -5: expected 1 or more"),
            ("GEMM with m=n=k=1000000 on this CPU", "this machine has 4.0 GiB"),
            ("GEMM with m=n=k=9000000000000000000 on this CPU", "the sizes are beyond any memory"),
            ("fp8 GEMM with m=n=k=64 on this CPU", "there is no template in fp8"),
            ("double precision GEMM with m=n=k=64 on this CPU", "there is no template in double"),
            ("bf16 GEMM with m=n=k=64 on a H100", "there is no template in bf16"),
            ("fp16 GEMM with m=n=k=64 on this CPU", "half precision has a template on GPUs alone"),
            (
                "conv2d 2x2 height 2 width 2, 3 channels, 4 filters, rows 5, columns 2 on this CPU",
                "rows is 5, more than the padded",
            ),
        ] {
            let told = made(
                sentence,
                &Said::read(sentence),
                &Here { memory: Some(4 << 30), openblas: None, cublas: true, cudnn: true },
            )
            .unwrap_err();
            assert!(told.contains(why), "{sentence}: {told}");
        }
    }

    #[test]
    fn single_precision_on_a_gpu_is_drawn_beyond_what_half_precision_holds() {
        let here = Here { memory: None, openblas: None, cublas: false, cudnn: false };
        let task = |sentence: &str| made(sentence, &Said::read(sentence), &here).unwrap().task;
        let wide = "low = -1048576, high = 1048576";
        let on_gpu = task("fp32 GEMM with m=n=k=4096 on a H200");
        assert_eq!(on_gpu.matches(wide).count(), 2, "{on_gpu}");
        // 4e-7 * 4096 for operands in [-1, 1), by 2^40.
        let tolerance = on_gpu.lines().find_map(|line| line.strip_prefix("atol = ")).unwrap();
        assert!(
            (tolerance.parse::<f64>().unwrap() / (4e-7 * 4096.0 * 2f64.powi(40)) - 1.0).abs() < 1e-9,
            "{tolerance}"
        );
        assert!(on_gpu.contains("nothing may rest on the range that happens to be drawn"), "{on_gpu}");
        let convolution = "fp32 conv2d 8x8 height 8 width 8, 3 channels, 4 filters, rows 3, columns 3 on a H200";
        assert_eq!(task(convolution).matches(wide).count(), 2);
        for sentence in ["fp16 GEMM with m=n=k=64 on a H200", "GEMM with m=n=k=64 on this CPU"] {
            assert_eq!(task(sentence).matches("low = -1, high = 1 ").count(), 2, "{sentence}");
        }
    }

    #[test]
    fn a_layer_that_is_named_has_its_papers_sizes_and_is_measured_against_im2col_with_the_library() {
        let openblas = Some(OpenBlas { core: None });
        let here = Here { memory: None, openblas, cublas: false, cudnn: false };
        let made = |sentence| made(sentence, &Said::read(sentence), &here).unwrap();
        let first = made("ResNet-50 conv1 on this CPU");
        let sizes = "name = \"asked\"\nbatch = 1\nchannels = 3\nheight = 224\nwidth = 224\nfilters = 64\nrows = 7\ncolumns = 7\nstride = 2\npad = 3";
        for part in [sizes, "# im2col and OpenBLAS on one core", "against = \"openblas\""] {
            assert!(first.task.contains(part), "{part}: {}", first.task);
        }
        assert!(first.baseline.unwrap().1.contains("void im2col("));
        let large = made("a fast VGG-16 conv3_2 on this CPU").task;
        assert!(!first.task.contains("[oracle]") && large.contains("[oracle]") && large.contains("name = \"deep\""));
    }

    #[test]
    fn a_processor_that_is_not_here_is_emulated_or_refused_with_the_reason() {
        let made = |sentence| made(sentence, &Said::read(sentence), &Here::default());
        let k1 = made("GEMM m=n=k=64 on a K1").unwrap();
        assert!(k1.task.contains("processor = \"K1\"") && k1.chosen.join(" ").contains("nothing is timed"), "{k1:?}");
        assert!(made("GEMM m=n=k=64 on a C910").unwrap_err().contains("RVV 0.7.1"));
        assert!(!made("GEMM m=n=k=64 on an EPYC").unwrap().task.contains("processor"));
    }

    #[test]
    fn what_the_sentence_does_not_say_is_chosen_and_said() {
        let sentence = "GEMM m=n=k=64 on this GPU with tensor cores";
        let made = made(sentence, &Said::read(sentence), &Here::default()).unwrap();
        assert!(made.chosen[0].contains("half precision with sums in single"), "{:?}", made.chosen);
        assert!(made.source.contains("__half *c") && made.task.contains("dtype = \"f16\""));
    }

    #[test]
    fn a_product_on_this_processor_is_measured_against_the_library_at_its_strongest() {
        let sentence = "GEMM m=n=k=1024 on this CPU";
        let made = |core| {
            let openblas = Some(OpenBlas { core });
            made(sentence, &Said::read(sentence), &Here { memory: None, openblas, cublas: true, cudnn: true }).unwrap()
        };
        let all = made(Some("SkylakeX"));
        for part in
            ["against = \"openblas-skylakex\"", "OPENBLAS_CORETYPE = \"SkylakeX\"", "[oracle]", "name = \"blocks\""]
        {
            assert!(all.task.contains(part), "{part}: {}", all.task);
        }
        assert!(all.baseline.is_some() && all.chosen[1].contains("speedups are over openblas-skylakex"));
        let one = made(None);
        assert!(one.task.contains("against = \"openblas\"") && !one.task.contains("CORETYPE"), "{}", one.task);
        let none = super::made(sentence, &Said::read(sentence), &Here::default()).unwrap();
        assert!(!none.task.contains("baseline") && none.baseline.is_none());
        assert!(none.chosen[1].contains("OpenBLAS is not here"), "{:?}", none.chosen);
    }

    #[test]
    fn a_product_on_a_gpu_is_measured_against_cublas() {
        let made =
            |sentence, cublas| made(sentence, &Said::read(sentence), &Here { cublas, ..Here::default() }).unwrap();
        let half = made("GEMM m=n=k=8192 on this GPU with tensor cores", true);
        for part in ["against = \"cublas\"", "link = [\"cublas\"]", "[oracle]", "symbols = [\"cublas*\"]"] {
            assert!(half.task.contains(part), "{part}: {}", half.task);
        }
        assert!(!half.task.contains("openblas"), "{}", half.task);
        let source = |made: &Made| made.baseline.clone().unwrap();
        assert!(source(&half).0 == "cublas.cu" && source(&half).1.contains("cublasGemmEx("), "{:?}", half.baseline);
        let single = made("fp32 GEMM m=n=k=1024 on this GPU", true);
        assert!(source(&single).1.contains("cublasSgemm("), "{:?}", single.baseline);
        assert!(!single.task.contains("[oracle]"), "the reference is fast enough: {}", single.task);
        let none = made("fp32 GEMM m=n=k=1024 on this GPU", false);
        assert!(!none.task.contains("baseline") && none.baseline.is_none());
        assert!(none.chosen.iter().any(|line| line.contains("has no cuBLAS")), "{:?}", none.chosen);
    }

    #[test]
    fn a_convolution_on_a_gpu_is_measured_against_cudnn() {
        let made = |sentence, cudnn| made(sentence, &Said::read(sentence), &Here { cudnn, ..Here::default() }).unwrap();
        let half = made("ResNet-50 conv3-3x3 on this GPU with tensor cores", true);
        for part in ["against = \"cudnn\"", "link = [\"cudnn\"]", "symbols = [\"cudnn*\"]", "returns = \"status\""] {
            assert!(half.task.contains(part), "{part}: {}", half.task);
        }
        assert!(!half.task.contains("cublas") && !half.task.contains("[oracle]"), "{}", half.task);
        let source = |made: &Made| made.baseline.clone().unwrap();
        let (file, text) = source(&half);
        assert!(file == "cudnn.cu" && text.contains("TYPE = 2, MATH = 1;") && text.contains("__half *y"), "{text}");
        let (_, text) = source(&made("fp32 ResNet-50 conv3-3x3 on this GPU", true));
        assert!(text.contains("TYPE = SINGLE, MATH = 3;") && !text.contains("chosen.math)"), "{text}");
        let none = made("ResNet-50 conv3-3x3 on this GPU with tensor cores", false);
        assert!(!none.task.contains("baseline") && none.baseline.is_none());
        assert!(none.chosen.iter().any(|line| line.contains("CUDNN_PATH names its folder")), "{:?}", none.chosen);
    }
}
