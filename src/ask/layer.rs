//! Named layers of convolutions: `ResNet-50 conv1`.

use super::Operator;
use std::collections::BTreeMap;

const TABLE: &str = include_str!("layers.toml");

/// Every layer: its network, its name, and its sizes but the batch, in the order of [`Operator::needs`].
pub(super) fn all() -> Vec<(String, String, Vec<i64>)> {
    let networks: BTreeMap<String, BTreeMap<String, Vec<i64>>> = toml::from_str(TABLE).unwrap_or_default();
    let of = |(network, layers): (String, BTreeMap<String, Vec<i64>>)| {
        layers.into_iter().map(move |(name, sizes)| (network.clone(), name, sizes))
    };
    networks.into_iter().flat_map(of).collect()
}

/// The sizes of the layer that a text in small letters names, and the text without the name, whose numbers are no sizes.
pub(super) fn named(text: &str) -> Option<(BTreeMap<String, i64>, String)> {
    let mut all = all();
    all.sort_by_key(|(_, name, _)| std::cmp::Reverse(name.len()));
    let found = all.into_iter().find_map(|(network, name, sizes)| {
        let whole = format!("{network} {name}");
        text.contains(&whole).then(|| (text.replacen(&whole, "layer", 1), sizes))
    });
    let (rest, sizes) = found?;
    let names = Operator::Conv2d.needs().iter().skip(1).map(ToString::to_string);
    Some((std::iter::once(("batch".to_owned(), 1)).chain(names.zip(sizes)).collect(), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twelve_layers_of_three_networks_are_read_and_each_has_an_output() {
        let all = all();
        assert_eq!(all.len(), 12);
        for (network, name, sizes) in &all {
            let &[channels, height, width, filters, rows, columns, stride, pad] = &sizes[..] else {
                panic!("{network} {name}: {sizes:?}")
            };
            assert!(height + 2 * pad >= rows && width + 2 * pad >= columns, "{network} {name}");
            assert!([channels, filters, stride].iter().all(|size| *size > 0), "{network} {name}");
            let (read, rest) = named(&format!("a fast {network} {name} on this cpu")).unwrap();
            assert_eq!((read["filters"], read["batch"], rest.as_str()), (filters, 1, "a fast layer on this cpu"));
        }
    }
}
