//! What a model made of a sentence that is beyond the grammar: it fills what the grammar found missing, in the grammar's words.

use super::{Hardware, Operator, Precision, Said, sentence};
use prompts::{Fact, Sayable};

/// What a sentence may say, by name, and what each stands for.
#[must_use]
pub fn sayable() -> Vec<Sayable> {
    let mut all = vec![
        ("operator".to_owned(), "`gemm`, a product of two matrices, or `conv2d`, a convolution of images".to_owned()),
        (
            "precision".to_owned(),
            "of the elements: `fp32`, `fp16`, or another by its short name, such as `bf16`".to_owned(),
        ),
        ("tensor_cores".to_owned(), "`yes` where tensor cores are asked for".to_owned()),
        (
            "hardware".to_owned(),
            format!(
                "what it is to run on: `this cpu` or `this gpu` for the machine at hand, or {}",
                one_of(&hardware())
            ),
        ),
    ];
    let sizes: [(&str, &str); 12] = [
        ("m", "of gemm: rows of the first factor and of the product"),
        ("n", "of gemm: columns of the second factor and of the product"),
        ("k", "of gemm: columns of the first factor, rows of the second"),
        ("batch", "of conv2d: images"),
        ("channels", "of conv2d: channels of an image"),
        ("height", "of conv2d: of an image"),
        ("width", "of conv2d: of an image"),
        ("filters", "of conv2d: filters, which are the output's channels"),
        ("rows", "of conv2d: of a filter"),
        ("columns", "of conv2d: of a filter"),
        ("stride", "of conv2d: by how much a filter moves"),
        ("pad", "of conv2d: zeros on each side"),
    ];
    all.extend(sizes.map(|(name, what)| (name.to_owned(), what.to_owned())));
    all
}

fn hardware() -> Vec<&'static str> {
    sentence::NAMED.iter().map(|(name, _)| *name).collect()
}

fn one_of(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// What the grammar found in a sentence, with what a model found beside it where that is missing; and in words what of the
/// model's was left out, because the grammar has no such value or the sentence says another itself.
#[must_use]
pub fn filled(own: &Said, facts: &[Fact]) -> (Said, Vec<String>) {
    let (read, mut dropped) = read(facts);
    let mut both = own.clone();
    both.operator = own.operator.or(read.operator);
    if own.precision.is_none() && own.foreign.is_none() {
        (both.precision, both.foreign) = (read.precision, read.foreign.clone());
    }
    both.tensor_cores |= read.tensor_cores;
    both.hardware = own.hardware.clone().or_else(|| read.hardware.clone());
    let needs = both.operator.map_or(&[][..], Operator::needs);
    let lacks = needs.iter().any(|name| !own.sizes.contains_key(*name));
    for (name, value) in read.sizes.iter().filter(|(name, _)| lacks && needs.contains(&name.as_str())) {
        // What the grammar takes where nothing is said, the sentence does not say.
        if own.sizes.get(name).is_none_or(|own| sentence::USUAL.contains(&(name.as_str(), *own))) {
            both.sizes.insert(name.clone(), *value);
        }
    }
    let kept = [
        ("operator", read.operator.is_some() && read.operator != both.operator),
        ("precision", precision(&read).is_some() && precision(&read) != precision(&both)),
        ("hardware", read.hardware.is_some() && read.hardware != both.hardware),
    ];
    let kept = kept.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name);
    let sizes = read.sizes.iter().filter(|(name, value)| both.sizes.get(*name).is_some_and(|own| own != *value));
    let kept = kept.chain(sizes.map(|(name, _)| name.as_str()));
    dropped.extend(kept.map(|name| format!("{name}: the sentence says another itself")));
    (both, dropped)
}

/// A sentence that the grammar reads as this.
#[must_use]
pub fn words(said: &Said) -> String {
    let needs = said.operator.map_or(&[][..], Operator::needs);
    let sizes = needs.iter().filter_map(|name| Some(format!("{name}={}", said.sizes.get(*name)?)));
    let cores = said.tensor_cores.then(|| "with tensor cores".to_owned());
    let place = said.hardware.as_ref().map(|hardware| match hardware {
        Hardware::ThisCpu => "on this cpu".to_owned(),
        Hardware::ThisGpu => "on this gpu".to_owned(),
        Hardware::Named(name) => format!("on {name}"),
    });
    let operator = said.operator.map(|operator| operator.name().to_owned());
    let parts =
        operator.into_iter().chain(sizes).chain(precision(said).map(ToOwned::to_owned)).chain(cores).chain(place);
    parts.collect::<Vec<_>>().join(" ")
}

/// The precision that is named; one that no template is in hides what stands in its name, as `f16` does in `bf16`.
fn precision(said: &Said) -> Option<&str> {
    said.foreign.as_deref().or_else(|| {
        said.precision.map(|precision| match precision {
            Precision::Fp32 => "fp32",
            Precision::Fp16 => "fp16",
        })
    })
}

/// Facts as the grammar has them, and in words what was left out because the grammar has no such value.
fn read(facts: &[Fact]) -> (Said, Vec<String>) {
    let (mut said, mut dropped) = (Said::default(), vec![]);
    for (name, value) in facts {
        let text = value.to_lowercase();
        let expected = match name.as_str() {
            "operator" => {
                said.operator = operator(&text).or(said.operator);
                operator(&text).is_none().then(|| "gemm or conv2d".to_owned())
            }
            "precision" => {
                match text.as_str() {
                    "fp32" => said.precision = Some(Precision::Fp32),
                    "fp16" => said.precision = Some(Precision::Fp16),
                    other => said.foreign = sentence::FOREIGN.contains(&other).then(|| other.to_owned()),
                }
                let is_known = said.precision.is_some() || said.foreign.is_some();
                (!is_known).then(|| "fp32, fp16 or another's short name".to_owned())
            }
            "tensor_cores" => {
                said.tensor_cores = text == "yes";
                (!["yes", "no"].contains(&text.as_str())).then(|| "yes or no".to_owned())
            }
            "hardware" => {
                said.hardware = place(&text);
                let expected = || format!("`this cpu`, `this gpu`, or {}", one_of(&hardware()));
                said.hardware.is_none().then(expected)
            }
            size => {
                let number = text.parse::<i64>().ok().filter(|_| text.bytes().all(|c| c.is_ascii_digit()));
                said.sizes.extend(number.map(|number| (size.to_owned(), number)));
                number.is_none().then(|| "a number".to_owned())
            }
        };
        dropped.extend(expected.map(|expected| format!("{name} = {value}: expected {expected}")));
    }
    (said, dropped)
}

fn place(name: &str) -> Option<Hardware> {
    match name {
        "this cpu" => Some(Hardware::ThisCpu),
        "this gpu" => Some(Hardware::ThisGpu),
        name => hardware().contains(&name).then(|| Hardware::Named(name.to_owned())),
    }
}

fn operator(name: &str) -> Option<Operator> {
    [Operator::Gemm, Operator::Conv2d].into_iter().find(|operator| operator.name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_words(facts: &[(&str, &str)]) -> (String, Vec<String>) {
        let (said, dropped) = read(&owned(facts));
        (words(&said), dropped)
    }

    fn owned(facts: &[(&str, &str)]) -> Vec<Fact> {
        facts.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn what_a_model_read_is_read_by_the_grammar_as_the_same() {
        let (sentence, dropped) =
            in_words(&[("hardware", "This CPU"), ("operator", "gemm"), ("m", "7"), ("k", "9"), ("n", "8")]);
        assert_eq!((sentence.as_str(), dropped.len()), ("gemm m=7 n=8 k=9 on this cpu", 0));
        let said = Said::read(&sentence);
        assert!(said.questions().is_empty() && said.sizes["k"] == 9, "{said:?}");
        // One value each, none of them another's.
        let sizes = ["batch", "channels", "height", "width", "filters", "rows", "columns", "stride", "pad"];
        let values: Vec<String> = (0..sizes.len()).map(|at| (at + 13).to_string()).collect();
        let mut facts =
            vec![("operator", "conv2d"), ("hardware", "h200"), ("precision", "fp16"), ("tensor_cores", "yes")];
        facts.extend(sizes.iter().copied().zip(values.iter().map(String::as_str)));
        let said = Said::read(&in_words(&facts).0);
        for (name, value) in sizes.iter().zip(&values) {
            assert_eq!(said.sizes[*name].to_string(), *value, "{name}");
        }
        assert!(said.tensor_cores && said.questions().is_empty(), "{said:?}");
        for (name, _) in sentence::NAMED {
            let (sentence, _) = in_words(&[("operator", "gemm"), ("hardware", name)]);
            assert!(!Said::read(&sentence).questions().iter().any(|asked| asked.contains("hardware")), "{sentence}");
        }
    }

    #[test]
    fn what_the_grammar_does_not_know_is_dropped_and_a_foreign_precision_is_not() {
        let (sentence, dropped) = in_words(&[
            ("operator", "softmax"),
            ("m", "many"),
            ("hardware", "on my abacus"),
            ("precision", "fp13"),
            ("tensor_cores", "perhaps"),
        ]);
        assert_eq!((sentence.as_str(), dropped.len()), ("", 5));
        assert!(dropped[2].contains("expected `this cpu`, `this gpu`, or"), "{dropped:?}");
        let (sentence, _) = in_words(&[("operator", "gemm"), ("precision", "bf16")]);
        assert_eq!(Said::read(&sentence).foreign.as_deref(), Some("bf16"));
    }

    #[test]
    fn a_model_fills_what_is_missing_and_overrules_nothing() {
        let filled = |sentence: &str, facts: &[(&str, &str)]| {
            let (said, dropped) = filled(&Said::read(sentence), &owned(facts));
            assert_eq!(Said::read(&words(&said)), said, "{sentence}: {}", words(&said));
            (words(&said), dropped.join("; "))
        };
        // A model that forgets what the sentence says takes nothing away.
        let half = "fp16 product of 1k by 1k matrices with tensor cores on this gpu";
        let sizes = [("operator", "gemm"), ("m", "1024"), ("n", "1024"), ("k", "1024")];
        let whole = "gemm m=1024 n=1024 k=1024 fp16 with tensor cores on this gpu";
        assert_eq!(filled(half, &sizes), (whole.to_owned(), String::new()));
        // One that says otherwise is not believed, and a precision without a template stays one.
        let other = [&sizes[..], &[("precision", "fp16"), ("hardware", "this cpu")]].concat();
        let (said, dropped) = filled("bf16 product of 1k by 1k matrices on an H100", &other);
        assert_eq!(said, "gemm m=1024 n=1024 k=1024 bf16 on h100");
        assert_eq!(dropped, "precision: the sentence says another itself; hardware: the sentence says another itself");
        let same = [&sizes[..], &[("precision", "bf16")]].concat();
        assert_eq!(filled("bf16 product of 1k by 1k matrices on an H100", &same).1, "");
        let (said, dropped) = filled("gemm m=7 and n=8 on this cpu", &[("m", "9"), ("k", "5")]);
        assert_eq!(
            (said.as_str(), dropped.as_str()),
            ("gemm m=7 n=8 k=5 on this cpu", "m: the sentence says another itself")
        );
        // A layer that is named has its sizes; what is only usual is the model's to say.
        let layer = filled("ResNet-50 conv3-3x3 on my laptop", &[("hardware", "this cpu"), ("stride", "2")]).0;
        assert!(layer.contains("channels=128 height=28") && layer.contains("stride=1 pad=1 on this cpu"), "{layer}");
        let strided = filled(
            "convolution of 32x32 images, 8 channels, with 3x3 kernels on this cpu",
            &[("filters", "4"), ("stride", "2")],
        )
        .0;
        assert_eq!(
            strided,
            "conv2d batch=1 channels=8 height=32 width=32 filters=4 rows=3 columns=3 stride=2 pad=0 on this cpu"
        );
    }

    #[test]
    fn every_size_of_every_operator_may_be_said() {
        let all = sayable();
        for operator in [Operator::Gemm, Operator::Conv2d] {
            for size in operator.needs() {
                assert!(all.iter().any(|(name, what)| name == size && what.contains(operator.name())), "{size}");
            }
        }
    }
}
