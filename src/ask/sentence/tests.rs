//! Are sentences read as people write them, and is what they lack asked for?

use super::*;

fn sizes(said: &Said) -> String {
    let words: Vec<String> = said.sizes.iter().map(|(name, value)| format!("{name}={value}")).collect();
    words.join(" ")
}

const CUBE: &str = "k=1024 m=1024 n=1024";
const LAYER: &str = "batch=1 channels=64 columns=3 filters=128 height=56 pad=1 rows=3 stride=2 width=56";

#[test]
fn twenty_sentences_are_read() {
    use Hardware::{ThisCpu, ThisGpu};
    let named = |name: &str| Hardware::Named(name.to_owned());
    let (one, half) = (Some(Precision::Fp32), Some(Precision::Fp16));
    for (sentence, expected, precision, hardware) in [
        ("Write a high performance GEMM, m=n=k=1024, on this CPU", CUBE, None, ThisCpu),
        ("gemm m=1024 n=1024 k=1024 on this CPU", CUBE, None, ThisCpu),
        ("A matrix product of size 1024 in single precision for this processor", CUBE, one, ThisCpu),
        ("Please make me a fast 1024x1024x1024 matmul on this GPU.", CUBE, None, ThisGpu),
        ("matmul 1024 x 1024 in fp16 on this GPU", CUBE, half, ThisGpu),
        ("GEMM (m,k,n)=(512,4096,2048) on this CPU", "k=4096 m=512 n=2048", None, ThisCpu),
        ("GEMM with (m, k, n) = (512, 4096, 2048), float32, on my CPU", "k=4096 m=512 n=2048", one, ThisCpu),
        ("multiply two matrices, 512x4096 and 4096x2048, on this CPU", "k=4096 m=512 n=2048", None, ThisCpu),
        (
            "Generate a matrix multiplication 512 by 4096 by 4096 by 2048 on the host CPU",
            "k=4096 m=512 n=2048",
            None,
            ThisCpu,
        ),
        ("GEMM m=768, n=k=4096 for the C910", "k=4096 m=768 n=4096", None, named("c910")),
        ("half precision GEMM with m=n=k=8192 on an A100's tensor cores", "k=8192 m=8192 n=8192", half, named("a100")),
        ("GEMM m=16384 k=8192 n=1280 on RTX 4060", "k=8192 m=16384 n=1280", None, named("rtx 4060")),
        ("A fp32 GEMM of m: 100, n: 200, k: 300 on an H200", "k=300 m=100 n=200", one, named("h200")),
        ("gemm on K1, m=n=k=512", "k=512 m=512 n=512", None, named("k1")),
        ("a square 2048 matrix-matrix product on EPYC", "k=2048 m=2048 n=2048", None, named("epyc")),
        (
            "conv2d of a 56x56 image with 64 channels, 128 filters of 3x3, stride 2, padding 1 on this CPU",
            LAYER,
            None,
            ThisCpu,
        ),
        (
            "A convolution, batch 1, channels=64, height=56, width=56, filters=128, 3x3, stride=2, pad=1, this GPU",
            LAYER,
            None,
            ThisGpu,
        ),
        ("conv2d n=1 c=64 h=56 w=56 k=128 r=3 s=3 stride 2 pad 1 in fp32 on this CPU", LAYER, one, ThisCpu),
        (
            "convolution 56x56, 64 channels, 128 filters 3x3 with stride 2 and padding 1 on Cortex-A76",
            LAYER,
            None,
            named("cortex-a76"),
        ),
        ("GEMM with m=0 n=1024 k=1024 on this CPU", "k=1024 m=0 n=1024", None, ThisCpu),
    ] {
        let said = Said::read(sentence);
        assert_eq!(sizes(&said), expected, "{sentence}");
        assert_eq!((said.precision, said.hardware.clone()), (precision, Some(hardware)), "{sentence}");
        assert!(said.questions().is_empty(), "{sentence}: {:?}", said.questions());
    }
}

#[test]
fn what_five_sentences_lack_is_asked() {
    for (sentence, asked) in [
        ("Write something fast on this CPU", vec!["Which operator?"]),
        ("GEMM on this CPU", vec!["Which sizes? There is none for m, n, k"]),
        ("GEMM m=1024 n=512 on this GPU", vec!["Which sizes? There is none for k"]),
        ("GEMM m=n=k=1024", vec!["On which hardware?"]),
        (
            "conv2d of a 56x56 image",
            vec!["Which sizes? There is none for channels, filters, rows, columns", "On which hardware?"],
        ),
    ] {
        let questions = Said::read(sentence).questions();
        assert_eq!(questions.len(), asked.len(), "{sentence}: {questions:?}");
        assert!(
            questions.iter().zip(asked).all(|(question, asked)| question.starts_with(asked)),
            "{sentence}: {questions:?}"
        );
    }
}

#[test]
fn a_number_counts_what_it_stands_before_and_neither_a_cross_nor_what_a_comma_ended() {
    for sentence in [
        "conv2d of 32x32 images, 8 channels, with 4 filters, 3x3, on this CPU",
        "conv2d of 32x32 images, 8 channels, 4 filters of 3x3 on this CPU",
        "4 filters, 8 channels, 32x32 images, convolution by 3x3 kernels on this CPU",
    ] {
        let said = Said::read(sentence);
        assert_eq!(
            sizes(&said),
            "batch=1 channels=8 columns=3 filters=4 height=32 pad=0 rows=3 stride=1 width=32",
            "{sentence}"
        );
    }
}
