//! Reading one sentence: the operator, its sizes, the precision and the hardware (QiMeng-TensorOp §3.1).

use super::{Operator, layer};
use std::collections::BTreeMap;

/// What a sentence says. What it does not say is missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// The operator.
    pub operator: Option<Operator>,
    /// Sizes by name.
    pub sizes: BTreeMap<String, i64>,
    /// The precision, where it names one.
    pub precision: Option<Precision>,
    /// A precision that it names and no template is in.
    pub foreign: Option<String>,
    /// Whether it names tensor cores.
    pub tensor_cores: bool,
    /// What the operator runs on.
    pub hardware: Option<Hardware>,
}

/// The precision of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// Single.
    Fp32,
    /// Half, with sums in single.
    Fp16,
}

/// What an operator runs on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hardware {
    /// The processor of this machine.
    ThisCpu,
    /// The GPU of this machine.
    ThisGpu,
    /// Another one, by its name.
    Named(String),
}

/// Hardware that a sentence may name: the name, and whether it is a GPU. Longer names come first.
pub(super) const NAMED: [(&str, bool); 14] = [
    ("rtx 4060", true),
    ("rtx4060", true),
    ("a100", true),
    ("h100", true),
    ("h200", true),
    ("epyc", false),
    ("c906", false),
    ("c908", false),
    ("c910", false),
    ("cortex-a72", false),
    ("cortex-a76", false),
    ("a72", false),
    ("a76", false),
    ("k1", false),
];

/// What each size of a convolution may be called, behind or before its number.
const CONVOLUTION: [(&str, &[&str]); 9] = [
    ("batch", &["batch", "batches", "images", "n"]),
    ("channels", &["channels", "channel", "cin", "c"]),
    ("height", &["height", "h"]),
    ("width", &["width", "w"]),
    ("filters", &["filters", "filter", "kernels", "cout", "k"]),
    ("rows", &["rows", "r"]),
    ("columns", &["columns", "s"]),
    ("stride", &["stride", "strides"]),
    ("pad", &["pad", "padding"]),
];
/// What a convolution has where nothing is said.
pub(super) const USUAL: [(&str, i64); 3] = [("batch", 1), ("stride", 1), ("pad", 0)];
const PRODUCT: [(&str, &[&str]); 3] = [("m", &["m"]), ("n", &["n"]), ("k", &["k"])];

impl Hardware {
    /// Whether it is a GPU.
    #[must_use]
    pub fn is_gpu(&self) -> bool {
        match self {
            Self::ThisCpu => false,
            Self::ThisGpu => true,
            Self::Named(name) => NAMED.iter().any(|(known, gpu)| known == name && *gpu),
        }
    }
}

/// Precisions that a sentence may name and no template is in.
pub(super) const FOREIGN: [&str; 20] = [
    "fp64", "float64", "f64", "double", "bf16", "bfloat16", "tf32", "fp8", "float8", "e4m3", "e5m2", "fp4", "nvfp4",
    "mxfp4", "mxfp8", "int8", "i8", "uint8", "int4", "int32",
];

impl Said {
    /// Reads a sentence.
    #[must_use]
    pub fn read(sentence: &str) -> Self {
        let text = sentence.to_lowercase();
        let layer = layer::named(&text);
        let (known, text) = layer.map_or((None, text), |(sizes, rest)| (Some(sizes), rest));
        let words = words(&without_hardware(&text));
        let has = |names: &[&str]| names.iter().any(|name| text.contains(name));
        let product =
            has(&["gemm", "matmul", "matrix product", "matrix multipl", "matrix-matrix", "multiply two matrices"]);
        let operator = match (product, known.is_some() || has(&["conv2d", "convolution", "conv "])) {
            (true, false) => Some(Operator::Gemm),
            (false, true) => Some(Operator::Conv2d),
            _ => None,
        };
        let tensor_cores = has(&["tensor core", "tensor-core"]);
        let foreign = text.split(|c: char| !c.is_ascii_alphanumeric()).find(|word| FOREIGN.contains(word));
        let single = has(&["fp32", "float32", "f32", "single precision", "single-precision"]);
        let half = has(&["fp16", "float16", "f16", "half precision", "half-precision"]);
        let precision = match (single, half) {
            (true, false) => Some(Precision::Fp32),
            (false, true) => Some(Precision::Fp16),
            _ => None,
        };
        let sizes = match operator {
            Some(Operator::Gemm) => product_sizes(&words),
            Some(Operator::Conv2d) => {
                // A layer that is named has the sizes of its paper.
                let said = if known.is_some() { BTreeMap::new() } else { convolution_sizes(&words) };
                known.unwrap_or(said)
            }
            None => BTreeMap::new(),
        };
        let foreign = foreign.map(str::to_owned);
        Self { operator, sizes, precision, foreign, tensor_cores, hardware: hardware(&text) }
    }

    /// What a person has to be asked, a question each.
    #[must_use]
    pub fn questions(&self) -> Vec<String> {
        let mut questions = vec![];
        let Some(operator) = self.operator else {
            questions.push("Which operator? There are gemm (a matrix product) and conv2d (a convolution).".to_owned());
            return questions;
        };
        let missing: Vec<&str> =
            operator.needs().iter().copied().filter(|name| !self.sizes.contains_key(*name)).collect();
        if !missing.is_empty() {
            let example = if operator == Operator::Gemm {
                "m=n=k=1024"
            } else {
                "batch 1, 64 channels, 56x56, 64 filters of 3x3"
            };
            questions
                .push(format!("Which sizes? There is none for {}; write them as in {example}.", missing.join(", ")));
        }
        if self.hardware.is_none() {
            questions.push("On which hardware? Write `on this CPU`, `on this GPU`, or a name such as A100.".to_owned());
        }
        questions
    }
}

/// The text without the names of hardware, whose numbers are no sizes.
fn without_hardware(text: &str) -> String {
    let mut text = text.to_owned();
    for (name, _) in NAMED {
        let bounds = |at: usize| {
            let (before, behind) = (text[..at].chars().next_back(), text[at + name.len()..].chars().next());
            !before.is_some_and(char::is_alphanumeric) && !behind.is_some_and(char::is_alphanumeric)
        };
        let found: Vec<usize> = text.match_indices(name).map(|(at, _)| at).filter(|at| bounds(*at)).collect();
        for at in found.into_iter().rev() {
            text.replace_range(at..at + name.len(), "hardware");
        }
    }
    text
}

fn hardware(text: &str) -> Option<Hardware> {
    let has = |names: &[&str]| names.iter().any(|name| text.contains(name));
    if has(&["this cpu", "this processor", "my cpu", "the host cpu", "this machine's cpu"]) {
        return Some(Hardware::ThisCpu);
    }
    if has(&["this gpu", "my gpu", "this machine's gpu"]) {
        return Some(Hardware::ThisGpu);
    }
    let parts: Vec<&str> = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').collect();
    let named =
        NAMED.iter().find(|(name, _)| if name.contains(' ') { text.contains(name) } else { parts.contains(name) });
    named.map(|(name, _)| Hardware::Named((*name).to_owned()))
}

/// Words, numbers and signs. `1024x1024` comes apart, so does `m=n=k=1024`.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = vec![];
    let mut kind = ' ';
    for c in text.chars() {
        let now = match c {
            '0'..='9' => '0',
            'a'..='z' => 'a',
            _ => ' ',
        };
        // A sign before a number belongs to it.
        let negative = words.last().is_some_and(|last| last == "-") && now == '0';
        match words.last_mut() {
            Some(last) if (now != ' ' && now == kind) || negative => last.push(c),
            _ if c.is_whitespace() => {}
            _ => words.push(c.to_string()),
        }
        kind = now;
    }
    words
}

fn number(word: Option<&String>) -> Option<i64> {
    word?.parse().ok()
}

/// `64 channels`, `channels 64`, `c=64`, `m=n=k=1024`, `(m, k, n) = (512, 4096, 4096)`.
fn named(words: &[String], names: &[(&str, &[&str])]) -> BTreeMap<String, i64> {
    let of = |word: &String| names.iter().find(|(_, known)| known.contains(&word.as_str())).map(|(name, _)| *name);
    let mut found = BTreeMap::new();
    let mut at = 0;
    while at < words.len() {
        // `64 channels, 128 filters`: the number before a name is its own, unless one is given behind it.
        // In `3x3 filters` the three counts none.
        let is_crossed = at.checked_sub(2).is_some_and(|sign| ["x", "by", "×", "*"].contains(&words[sign].as_str()));
        let before = at.checked_sub(1).filter(|_| !is_crossed).and_then(|before| number(words.get(before)));
        let crossed = words.get(at + 2).is_some_and(|word| ["x", "by"].contains(&word.as_str()));
        let given = |next: &String| number(Some(next)).is_some() && !crossed;
        let behind = words.get(at + 1).is_some_and(|next| given(next) || ["=", ":"].contains(&next.as_str()));
        if let (Some(name), Some(value), false) = (of(&words[at]), before, behind) {
            found.entry(name.to_owned()).or_insert(value);
            at += 1;
            continue;
        }
        let mut run: Vec<&str> = vec![];
        let mut next = at;
        // Names in a row, with signs and `and` between them.
        while let Some(word) = words.get(next) {
            match of(word) {
                Some(name) => run.push(name),
                None if [",", "(", ")", "=", ":", "and", "of"].contains(&word.as_str()) && !run.is_empty() => {}
                None => break,
            }
            next += 1;
        }
        // `images, 8 channels`: behind a comma another begins.
        let is_over = run.len() == 1 && next.checked_sub(1).is_some_and(|sign| words[sign] == ",");
        let mut numbers = vec![];
        while let Some(word) = words.get(next).filter(|_| !run.is_empty() && !is_over) {
            match number(Some(word)) {
                Some(value) => numbers.push(value),
                None if [",", "(", ")"].contains(&word.as_str()) && numbers.len() < run.len() => {}
                None => break,
            }
            next += 1;
            if numbers.len() == run.len() {
                break;
            }
        }
        let all_one = numbers.len() == 1;
        if all_one || numbers.len() == run.len() {
            for (nth, name) in run.iter().enumerate() {
                let value = if all_one { numbers.first() } else { numbers.get(nth) };
                if let Some(value) = value {
                    found.entry((*name).to_owned()).or_insert(*value);
                }
            }
        }
        at = next.max(at + 1);
    }
    found
}

/// The numbers of `512x512x64` or `512 by 512`, wherever they stand: where they begin, and all of them.
fn crosses(words: &[String]) -> Vec<Vec<i64>> {
    let (mut all, mut at) = (vec![], 0);
    while at < words.len() {
        let mut run: Vec<i64> = number(words.get(at)).into_iter().collect();
        while !run.is_empty() && words.get(at + 1).is_some_and(|word| ["x", "by", "×", "*"].contains(&word.as_str())) {
            let Some(next) = number(words.get(at + 2)) else { break };
            run.push(next);
            at += 2;
        }
        if run.len() > 1 {
            all.push(run);
        }
        at += 1;
    }
    all
}

fn product_sizes(words: &[String]) -> BTreeMap<String, i64> {
    let mut sizes = named(words, &PRODUCT);
    let three = |[m, n, k]: [i64; 3]| [("m", m), ("n", n), ("k", k)].map(|(name, value)| (name.to_owned(), value));
    // `512x4096 by 4096x1024` is m x k by k x n; `512x1024x4096` is m x n x k.
    match crosses(words)[..] {
        [ref all] if all.len() == 3 => sizes.extend(three([all[0], all[1], all[2]])),
        [ref all] if all.len() == 4 && all[1] == all[2] => sizes.extend(three([all[0], all[3], all[1]])),
        [ref a, ref b] if a.len() == 2 && b.len() == 2 && a[1] == b[0] => sizes.extend(three([a[0], b[1], a[1]])),
        [ref all] if all.len() == 2 && all[0] == all[1] => sizes.extend(three([all[0]; 3])),
        _ => {}
    }
    let after = |word: &str| words.iter().position(|known| known == word).and_then(|at| number(words.get(at + 1)));
    if let Some(size) = after("size").or_else(|| after("square")).filter(|_| sizes.is_empty()) {
        sizes.extend(three([size; 3]));
    }
    sizes
}

fn convolution_sizes(words: &[String]) -> BTreeMap<String, i64> {
    // What is called by one letter is so only before a number and `=`.
    let mut sizes = named(words, &CONVOLUTION);
    let mut put = |name: &str, value: i64| {
        sizes.entry(name.to_owned()).or_insert(value);
    };
    for pair in crosses(words) {
        match pair[..] {
            [rows, columns] if rows <= 11 && columns <= 11 => [("rows", rows), ("columns", columns)],
            [height, width] => [("height", height), ("width", width)],
            _ => continue,
        }
        .into_iter()
        .for_each(|(name, value)| put(name, value));
    }
    for (name, usual) in USUAL {
        put(name, usual);
    }
    sizes
}

#[cfg(test)]
mod tests;
