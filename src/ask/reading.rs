//! What a model made of a sentence that is beyond the grammar, in the grammar's own words: the grammar reads that.

use super::{Operator, sentence};
use prompts::{Fact, Sayable};
use std::collections::BTreeMap;

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

/// The sentence, and in words what was left out of it because the grammar has no such value.
#[must_use]
pub fn in_words(facts: &[Fact]) -> (String, Vec<String>) {
    let (mut by_name, mut dropped) = (BTreeMap::new(), vec![]);
    for (name, value) in facts {
        let value = value.to_lowercase();
        let (known, expected) = match name.as_str() {
            "operator" => (operator(&value).is_some(), "gemm or conv2d".to_owned()),
            "precision" => (is_precision(&value), "fp32, fp16 or another's short name".to_owned()),
            "tensor_cores" => (["yes", "no"].contains(&value.as_str()), "yes or no".to_owned()),
            "hardware" => {
                let known = ["this cpu", "this gpu"].contains(&value.as_str()) || hardware().contains(&value.as_str());
                (known, format!("`this cpu`, `this gpu`, or {}", one_of(&hardware())))
            }
            _ => (value.parse::<i64>().is_ok(), "a number".to_owned()),
        };
        if known {
            by_name.insert(name.as_str(), value);
        } else {
            dropped.push(format!("{name} = {value}: expected {expected}"));
        }
    }
    let needs = by_name.get("operator").and_then(|name| operator(name)).map_or(&[][..], Operator::needs);
    let sizes = needs.iter().filter_map(|name| Some(format!("{name}={}", by_name.get(name)?)));
    let word = |name: &str| by_name.get(name).cloned();
    let cores = word("tensor_cores").filter(|said| said == "yes").map(|_| "with tensor cores".to_owned());
    let place = word("hardware").map(|name| format!("on {name}"));
    let parts = word("operator").into_iter().chain(sizes).chain(word("precision")).chain(cores).chain(place);
    (parts.collect::<Vec<_>>().join(" "), dropped)
}

fn operator(name: &str) -> Option<Operator> {
    [Operator::Gemm, Operator::Conv2d].into_iter().find(|operator| operator.name() == name)
}

fn is_precision(name: &str) -> bool {
    ["fp32", "fp16"].contains(&name) || sentence::FOREIGN.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::{super::Said, *};

    fn read(facts: &[(&str, &str)]) -> (String, Vec<String>) {
        let facts: Vec<Fact> = facts.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        in_words(&facts)
    }

    #[test]
    fn what_a_model_read_is_read_by_the_grammar_as_the_same() {
        let (sentence, dropped) =
            read(&[("hardware", "This CPU"), ("operator", "gemm"), ("m", "7"), ("k", "9"), ("n", "8")]);
        assert_eq!((sentence.as_str(), dropped.len()), ("gemm m=7 n=8 k=9 on this cpu", 0));
        let said = Said::read(&sentence);
        assert!(said.questions().is_empty() && said.sizes["k"] == 9, "{said:?}");
        // One value each, none of them another's.
        let sizes = ["batch", "channels", "height", "width", "filters", "rows", "columns", "stride", "pad"];
        let values: Vec<String> = (0..sizes.len()).map(|at| (at + 13).to_string()).collect();
        let mut facts =
            vec![("operator", "conv2d"), ("hardware", "h200"), ("precision", "fp16"), ("tensor_cores", "yes")];
        facts.extend(sizes.iter().copied().zip(values.iter().map(String::as_str)));
        let said = Said::read(&read(&facts).0);
        for (name, value) in sizes.iter().zip(&values) {
            assert_eq!(said.sizes[*name].to_string(), *value, "{name}");
        }
        assert!(said.tensor_cores && said.questions().is_empty(), "{said:?}");
        for (name, _) in sentence::NAMED {
            let (sentence, _) = read(&[("operator", "gemm"), ("hardware", name)]);
            assert!(!Said::read(&sentence).questions().iter().any(|asked| asked.contains("hardware")), "{sentence}");
        }
    }

    #[test]
    fn what_the_grammar_does_not_know_is_dropped_and_a_foreign_precision_is_not() {
        let (sentence, dropped) = read(&[
            ("operator", "softmax"),
            ("m", "many"),
            ("hardware", "on my abacus"),
            ("precision", "fp13"),
            ("tensor_cores", "perhaps"),
        ]);
        assert_eq!((sentence.as_str(), dropped.len()), ("", 5));
        assert!(dropped[2].contains("expected `this cpu`, `this gpu`, or"), "{dropped:?}");
        let (sentence, _) = read(&[("operator", "gemm"), ("precision", "bf16")]);
        assert_eq!(Said::read(&sentence).foreign.as_deref(), Some("bf16"));
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
