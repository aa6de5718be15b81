//! What JSON does a reply hold? One object, bare, fenced or in the middle of prose; two are one too many.

use crate::{Unreadable, words::one_line};
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::Value;

/// Bytes of a reply in which JSON is looked for: a verdict has a hundred words.
const LOOKED_AT: usize = 256 << 10;

/// Braces that begin no JSON object before the search is given up: a long source file has some hundreds.
const FAILURES: u32 = 1000;
/// A text may have this part of its words more than it was asked to: models count otherwise, and to ask again for one word
/// costs a call.
const SLACK: usize = 5;
/// Bytes of a word, at most and on average: what is longer is no prose.
const WORD_BYTES: usize = 60;

/// Bytes of a name in a list, at most: no metric's is as long.
const NAME_BYTES: usize = 160;

/// A string that a reply must hold.
pub(crate) struct Field {
    /// Its key.
    pub(crate) key: &'static str,
    /// Its limit in words.
    pub(crate) most_words: usize,
    /// Whether it names one thing, so that a numbered list in it is refused.
    pub(crate) single: bool,
}

/// A JSON object, in its own order, with its repeated keys.
#[derive(PartialEq)]
struct Object(Vec<(String, Value)>);

/// The strings of the one object in the reply that has these fields. `others` are the fields of another kind of reply, and
/// `other_kind` is what is said where that came instead. The keys `beside` may be there, too.
pub(crate) fn read_fields<const N: usize>(
    reply: &str,
    fields: &[Field; N],
    others: &[Field],
    other_kind: &str,
    beside: &[&str],
) -> Result<[String; N], Unreadable> {
    let keys: Vec<&str> = fields.iter().chain(others).map(|field| field.key).collect();
    let Object(pairs) = one_object(reply, &keys)?;
    let known = |key: &str, among: &[Field]| among.iter().any(|field| same_key(key, field.key));
    if !pairs.iter().any(|(key, _)| known(key, fields)) && !others.is_empty() {
        return Err(Unreadable(other_kind.into()));
    }
    let mut wrong: Vec<String> = Vec::new();
    let strings = fields.each_ref().map(|field| read_field(&pairs, field).unwrap_or_else(|why| push(&mut wrong, why)));
    let extra =
        pairs.iter().filter(|(key, _)| !known(key, fields) && !beside.iter().any(|beside| same_key(key, beside)));
    wrong.extend(extra.take(5).map(|(key, _)| format!("`{}` was not asked for", quoted(key))));
    if wrong.is_empty() { Ok(strings) } else { Err(Unreadable(wrong.join("; "))) }
}

/// The short strings, at most so many, in the list under a key beside these fields; none where there is no such list.
pub(crate) fn read_names(reply: &str, fields: &[Field], key: &str, most: usize) -> Vec<String> {
    let keys: Vec<&str> = fields.iter().map(|field| field.key).collect();
    let Ok(Object(pairs)) = one_object(reply, &keys) else { return vec![] };
    let list = pairs.into_iter().find(|(found, _)| same_key(found, key)).map(|(_, value)| value);
    let Some(Value::Array(list)) = list else { return vec![] };
    let short = |value: &Value| value.as_str().map(one_line).filter(|name| (1..=NAME_BYTES).contains(&name.len()));
    list.iter().filter_map(short).take(most).collect()
}

/// The list under the only key of the one object in the reply that has it.
pub(crate) fn read_list(reply: &str, key: &str) -> Result<Vec<Value>, Unreadable> {
    let Object(mut pairs) = one_object(reply, &[key])?;
    match (pairs.pop(), pairs.is_empty()) {
        (Some((_, Value::Array(list))), true) => Ok(list),
        (Some(_), true) => Err(Unreadable(format!("`{key}` is no list"))),
        _ => Err(Unreadable(format!("the JSON object has other keys than `{key}`"))),
    }
}

/// The value as a string on one line.
pub(crate) fn within(name: &str, value: &Value, most_words: usize) -> Result<String, String> {
    let Value::String(text) = value else {
        let found = if value.is_array() { "a list" } else { "no string" };
        return Err(format!("`{name}` is {found}; expected one string"));
    };
    let words = text.split_whitespace().count();
    match words {
        0 => Err(format!("`{name}` is empty")),
        _ if words > most_words + most_words / SLACK => {
            Err(format!("`{name}` has {words} words; at most {most_words} were asked for"))
        }
        _ if text.len() > most_words * WORD_BYTES => Err(format!("`{name}` is too long")),
        _ => Ok(one_line(text)),
    }
}

/// Some untrusted text, short and on one line.
pub(crate) fn quoted(text: &str) -> String {
    let line = one_line(text);
    match line.char_indices().nth(60) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}

/// What a model says after its reasoning, where it lets that be seen.
pub(crate) fn after_thinking(reply: &str) -> Result<&str, Unreadable> {
    let reply = reply.trim_start_matches('\u{feff}').trim();
    let said = match reply.strip_prefix("<think>") {
        Some(rest) => rest.split_once("</think>").map_or("", |(_, said)| said),
        None => reply,
    };
    match (said.trim(), reply) {
        ("", "") => Err(Unreadable("it is empty".into())),
        ("", _) => Err(Unreadable("it ends within its reasoning".into())),
        (said, _) => Ok(said),
    }
}

/// The text's beginning, and whether there is more.
pub(crate) fn beginning(text: &str, most_bytes: usize) -> (&str, bool) {
    let mut end = most_bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    (&text[..end], end < text.len())
}

fn push(wrong: &mut Vec<String>, why: String) -> String {
    wrong.push(why);
    String::new()
}

fn read_field(pairs: &[(String, Value)], field: &Field) -> Result<String, String> {
    let mut values = pairs.iter().filter(|(key, _)| same_key(key, field.key)).map(|(_, value)| value);
    let value = values.next().ok_or_else(|| format!("`{}` is missing", field.key))?;
    if values.next().is_some() {
        return Err(format!("`{}` is given twice; exactly one was asked for", field.key));
    }
    match value {
        Value::String(text) if field.single && is_numbered(text) => {
            Err(format!("`{}` lists several things; exactly one was asked for", field.key))
        }
        value => within(field.key, value, field.most_words),
    }
}

/// The one object that has any of these keys.
fn one_object(reply: &str, keys: &[&str]) -> Result<Object, Unreadable> {
    let (text, cut) = beginning(after_thinking(reply)?, LOOKED_AT);
    let all = objects(text);
    let has_key = |object: &Object| object.0.iter().any(|(key, _)| keys.iter().any(|known| same_key(key, known)));
    let (mut meant, others): (Vec<Object>, Vec<Object>) = all.into_iter().partition(has_key);
    meant.dedup();
    match (meant.len(), others.first()) {
        (1, _) => Ok(meant.remove(0)),
        (0, None) if cut => Err(Unreadable("it is too long and holds no JSON object near its beginning".into())),
        (0, None) if text.contains('{') => Err(Unreadable("its JSON object is broken or not complete".into())),
        (0, None) => Err(Unreadable("it holds no JSON object".into())),
        (0, Some(other)) => Err(Unreadable(format!("its JSON object has other keys than asked for: {}", names(other)))),
        (count, _) => Err(Unreadable(format!("it holds {count} answers; exactly one JSON object was asked for"))),
    }
}

fn names(object: &Object) -> String {
    let names: Vec<String> = object.0.iter().take(5).map(|(key, _)| quoted(key)).collect();
    if names.is_empty() { "none at all".into() } else { names.join(", ") }
}

/// All JSON objects that do not lie in another, in order; none behind too many braces that begin no object.
fn objects(text: &str) -> Vec<Object> {
    let mut found = Vec::new();
    let mut rest = text;
    let mut failures = 0;
    while let Some(start) = rest.find('{').filter(|_| failures < FAILURES) {
        rest = &rest[start..];
        let mut stream = serde_json::Deserializer::from_str(rest).into_iter::<Object>();
        let length = if let Some(Ok(object)) = stream.next() {
            found.push(object);
            stream.byte_offset()
        } else {
            failures += 1;
            1
        };
        rest = &rest[length..];
    }
    found
}

/// Whether two keys are the same but for case, spaces, hyphens, underscores and the two spellings of "optimization".
fn same_key(one: &str, other: &str) -> bool {
    let plain = |key: &str| key.trim().to_lowercase().replace([' ', '-'], "_").replace("optimis", "optimiz");
    one.len() <= 64 && plain(one) == plain(other)
}

/// Whether a text is a list: two items with numbers, or two lines with bullets.
fn is_numbered(text: &str) -> bool {
    let marker = |number: u32| {
        let forms = [format!("{number}."), format!("{number})"), format!("({number})"), format!("{number}:")];
        text.split_whitespace().position(|word| forms.iter().any(|form| form == word))
    };
    let bullets = text.lines().filter(|line| line.trim_start().starts_with(['-', '*', '•'])).count();
    bullets > 1 || marker(1).zip(marker(2)).is_some_and(|(one, two)| one < two)
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Pairs)
    }
}

struct Pairs;

impl<'de> Visitor<'de> for Pairs {
    type Value = Object;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
        let mut pairs = Vec::new();
        while let Some(pair) = map.next_entry()? {
            pairs.push(pair);
        }
        Ok(Object(pairs))
    }
}
