//! Actions of a search: a step of one parameter, or two independent instructions in each other's place (QiMeng-TensorOp §3.3).

use kernelbench::assembly::{Assembly, Orders, swap_in};
use kernelbench::{Bindings, Parameter, Space};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// What leads from one node to the next. It is written as a model writes it: `BN+32`, `swap compute 2 5`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Action {
    /// Adds to, or takes from, a parameter of the sketch.
    Step {
        /// The parameter.
        name: String,
        /// How much is added.
        by: i64,
    },
    /// Puts two instructions of a block in each other's place.
    Swap {
        /// The block.
        block: String,
        /// The place of one.
        one: u16,
        /// The place of the other.
        other: u16,
    },
}

/// What a node is tuned to: a value for each parameter, and the order of instructions in some blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Point {
    /// The values.
    pub bindings: Bindings,
    /// The orders, of those blocks that are not as they were printed.
    #[serde(default, skip_serializing_if = "Orders::is_empty")]
    pub orders: Orders,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Step { name, by } => write!(f, "{name}{by:+}"),
            Self::Swap { block, one, other } => write!(f, "swap {block} {one} {other}"),
        }
    }
}

impl FromStr for Action {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let expected = || format!("`{text}` is no action: expected one such as BN+32, BN-32 or swap compute 2 5");
        if let Some(rest) = text.strip_prefix("swap ") {
            // A block's name may hold spaces.
            let mut words = rest.trim().rsplitn(3, char::is_whitespace);
            let (other, one, block) = (words.next(), words.next(), words.next());
            let place = |word: Option<&str>| word.and_then(|word| word.parse().ok()).ok_or_else(expected);
            let block = block.map(str::trim).filter(|block| !block.is_empty()).ok_or_else(expected)?.to_owned();
            return Ok(Self::Swap { block, one: place(one)?, other: place(other)? });
        }
        let at = text.rfind(['+', '-']).ok_or_else(expected)?;
        let (name, by) = (text[..at].trim(), text[at..].replace(' ', ""));
        let known = name.starts_with(|c: char| c.is_ascii_uppercase());
        match by.parse() {
            Ok(by) if known && by != 0 => Ok(Self::Step { name: name.to_owned(), by }),
            _ => Err(expected()),
        }
    }
}

impl From<Action> for String {
    fn from(action: Action) -> Self {
        action.to_string()
    }
}

impl TryFrom<String> for Action {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// What an action may do where a node stands: its point, the parameters, and what its script printed.
#[derive(Clone, Copy, Debug)]
pub struct Ground<'a> {
    /// Where it stands.
    pub point: &'a Point,
    /// The parameters and what must hold between them.
    pub space: &'a Space,
    /// What the script printed for these values, in the printed order; none where no script prints.
    pub printed: Option<&'a Assembly>,
}

impl Ground<'_> {
    /// The point that an action leads to.
    ///
    /// # Errors
    /// In words why it is not legal: outside the domain, against a constraint, or past an instruction that depends on it.
    pub fn after(&self, action: &Action) -> Result<Point, String> {
        let mut point = self.point.clone();
        match action {
            Action::Step { name, by } => {
                let Some(Parameter::Number(now)) = point.bindings.get(name) else {
                    return Err(format!("there is no number `{name}`"));
                };
                let next = now.checked_add(*by).ok_or_else(|| format!("{name}{by:+} is no number"))?;
                point.bindings.insert(name.clone(), Parameter::Number(next));
                self.space.allows(&point.bindings)?;
            }
            Action::Swap { block, one, other } => {
                let printed = self.printed.ok_or("no script prints instructions here")?;
                let (one, other) = (usize::from(*one), usize::from(*other));
                printed.ordered(&point.orders)?.may_swap(block, one, other)?;
                let block = printed.blocks().iter().find(|found| found.name == *block);
                swap_in(&mut point.orders, block.ok_or("there is no such block")?, one, other);
            }
        }
        Ok(point)
    }

    /// One step up and one down in the domain of each parameter, where these are legal.
    #[must_use]
    pub fn steps(&self) -> Vec<Action> {
        let mut steps = vec![];
        for (name, values) in &self.space.grid {
            let Some(Parameter::Number(now)) = self.point.bindings.get(name) else { continue };
            let number = |value: &Parameter| if let Parameter::Number(n) = value { Some(*n) } else { None };
            let numbers = || values.iter().filter_map(number);
            let (up, down) = (numbers().filter(|n| n > now).min(), numbers().filter(|n| n < now).max());
            let both = up.into_iter().chain(down).map(|n| Action::Step { name: name.clone(), by: n - now });
            steps.extend(both.filter(|action| self.after(action).is_ok()));
        }
        steps
    }

    /// Swaps of two instructions that are at most `reach` places apart, where these are legal.
    #[must_use]
    pub fn swaps(&self, reach: usize) -> Vec<Action> {
        let Some(Ok(now)) = self.printed.map(|printed| printed.ordered(&self.point.orders)) else { return vec![] };
        let mut swaps = vec![];
        for block in now.blocks() {
            for one in 0..block.len() {
                for other in one + 1..block.len().min(one + 1 + reach) {
                    if now.may_swap(&block.name, one, other).is_ok() {
                        swaps.push(Action::Swap { block: block.name.clone(), one: one as u16, other: other as u16 });
                    }
                }
            }
        }
        swaps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernelbench::assembly::Isa;

    fn numbers(values: &[i64]) -> Vec<Parameter> {
        values.iter().map(|n| Parameter::Number(*n)).collect()
    }

    fn space() -> Space {
        let grid = [("BM".to_owned(), numbers(&[32, 64, 96])), ("BN".to_owned(), numbers(&[64, 32]))].into();
        Space { grid, constraints: vec!["BM * BN <= 4096".to_owned()] }
    }

    fn point() -> Point {
        let bindings = [("BM".to_owned(), Parameter::Number(64)), ("BN".to_owned(), Parameter::Number(32))].into();
        Point { bindings, orders: Orders::new() }
    }

    fn assembly() -> Assembly {
        let text =
            "F:\n# block: load\nvmovups ymm0, [rsi]\nvmovups ymm1, [rsi+32]\nvaddps ymm2, ymm0, ymm1\n# end\nret\n";
        Assembly::parse(Isa::X86, text).unwrap()
    }

    #[test]
    fn an_action_is_written_as_it_is_read() {
        for text in ["BN+32", "BM-16", "swap compute 2 5", "swap store 3 0 1"] {
            assert_eq!(text.parse::<Action>().unwrap().to_string(), text);
        }
        assert_eq!(" BN + 32".parse::<Action>().unwrap().to_string(), "BN+32");
        for text in ["", "BN", "BN+", "BN+0", "bn+1", "swap load 1", "swap 1 2", "swap load 1 x", "BN+1.5"] {
            assert!(text.parse::<Action>().unwrap_err().contains("expected one such as BN+32"), "{text}");
        }
    }

    #[test]
    fn a_step_is_done_and_undone_and_one_out_of_the_domain_or_against_a_constraint_is_not_legal() {
        let (point, space) = (point(), space());
        let ground = Ground { point: &point, space: &space, printed: None };
        let wider = ground.after(&"BN+32".parse().unwrap()).unwrap();
        let back = Ground { point: &wider, ..ground }.after(&"BN-32".parse().unwrap()).unwrap();
        assert_eq!(back, point);
        assert!(
            Ground { point: &wider, ..ground }.after(&"BM+32".parse().unwrap()).unwrap_err().contains("constraint")
        );
        assert!(ground.after(&"BN+16".parse().unwrap()).unwrap_err().contains("expected one of 64, 32"));
        assert!(ground.after(&"MR+2".parse().unwrap()).unwrap_err().contains("no number `MR`"));
        let steps: Vec<String> = ground.steps().iter().map(ToString::to_string).collect();
        assert_eq!(steps, ["BM+32", "BM-32", "BN+32"]);
    }

    #[test]
    fn a_swap_is_done_and_undone_and_one_past_what_depends_on_it_is_not_legal() {
        let (point, space, assembly) = (point(), space(), assembly());
        let ground = Ground { point: &point, space: &space, printed: Some(&assembly) };
        assert_eq!(ground.swaps(8), ["swap load 0 1".parse().unwrap()]);
        let swapped = ground.after(&"swap load 0 1".parse().unwrap()).unwrap();
        assert_eq!(swapped.orders["load"], [1, 0, 2]);
        let back = Ground { point: &swapped, ..ground }.after(&"swap load 1 0".parse().unwrap()).unwrap();
        assert_eq!(back, point);
        assert!(ground.after(&"swap load 1 2".parse().unwrap()).unwrap_err().contains("depend on each other"));
    }
}
