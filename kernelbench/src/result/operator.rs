//! Tensor operators as they are generated: a sketch with its parameters, and the primitives that it calls (QiMeng-TensorOp §3.2).

use crate::{
    assembly::{Assembly, Isa, Orders},
    result::candidate::{Candidate, Part},
    task::space::{Bindings, Space},
};
use serde::{Deserialize, Serialize};

/// The part of a candidate that is the sketch.
pub const SKETCH: &str = "sketch";
/// The part of a candidate that are the primitives.
pub const PRIMITIVES: &str = "primitives";

/// A generated tensor operator, open to tuning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operator {
    /// The main function, in C, C++ or CUDA C++, which calls the primitives; `{{NAME}}` stands where a parameter's value goes.
    pub sketch: String,
    /// The sketch's parameters. The first value of each is where tuning begins.
    pub tuning: Space,
    /// What it calls.
    pub primitives: Primitives,
}

/// The primitives of an operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Primitives {
    /// None yet, or all of them in the sketch.
    None,
    /// A Python script that prints assembly; the parameters are global names in it.
    Script(String),
    /// Source in the sketch's language, such as CUDA C++ with inline PTX.
    Source(String),
}

impl Operator {
    /// Where tuning begins: the first value of each parameter, or the first configuration where those violate a constraint.
    ///
    /// # Errors
    /// In words: no values satisfy the constraints, or one cannot be evaluated.
    pub fn first(&self) -> Result<Bindings, String> {
        let first: Bindings = self
            .tuning
            .grid
            .iter()
            .filter_map(|(name, values)| Some((name.clone(), values.first()?.clone())))
            .collect();
        if self.tuning.allows(&first).is_ok() {
            return Ok(first);
        }
        let first = self.tuning.configurations()?.into_iter().next();
        first.ok_or_else(|| "no values of its parameters satisfy every constraint".to_owned())
    }

    /// The script that prints its primitives, where there is one.
    #[must_use]
    pub fn script(&self) -> Option<&str> {
        if let Primitives::Script(script) = &self.primitives { Some(script) } else { None }
    }

    /// It as a candidate with these values; `printed` is what its script printed for them, with the instructions of some
    /// blocks in these orders.
    ///
    /// # Errors
    /// In words: what was printed is not taken, or an order does not fit it.
    pub fn candidate(
        &self,
        bindings: &Bindings,
        printed: Option<(Isa, &str)>,
        orders: &Orders,
    ) -> Result<Candidate, String> {
        let part = |region: &str, text: String| Part { region: region.to_owned(), text };
        let primitives = match (&self.primitives, printed) {
            (Primitives::Script(_), Some((isa, text))) => Some(Assembly::parse(isa, text)?.ordered(orders)?.in_c()),
            (Primitives::Source(text), _) => Some(text.clone()),
            _ => None,
        };
        let primitives = primitives.map(|text| part(PRIMITIVES, text));
        let parts = primitives.into_iter().chain([part(SKETCH, self.sketch.clone())]).collect();
        Ok(Candidate::of_parts(parts).bound(bindings.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::space::Parameter;

    fn operator() -> Operator {
        let numbers = |values: &[i64]| values.iter().map(|n| Parameter::Number(*n)).collect();
        let grid = [("BM".to_owned(), numbers(&[64, 32])), ("MR".to_owned(), numbers(&[6, 4]))].into();
        let tuning = Space { grid, constraints: vec!["BM % MR == 0".to_owned()] };
        Operator {
            sketch: "int f() { return {{BM}}; }\n".into(),
            tuning,
            primitives: Primitives::Script("print()".into()),
        }
    }

    #[test]
    fn tuning_begins_at_the_first_values_or_at_the_first_that_are_allowed() {
        let first = operator().first().unwrap();
        assert_eq!((&first["BM"], &first["MR"]), (&Parameter::Number(64), &Parameter::Number(4)));
        let mut none = operator();
        none.tuning.constraints.push("BM > 64".to_owned());
        assert!(none.first().unwrap_err().contains("no values"));
    }

    #[test]
    fn a_candidate_is_what_was_printed_and_the_sketch_with_its_values() {
        let operator = operator();
        let candidate =
            operator.candidate(&operator.first().unwrap(), Some((Isa::X86, "F:\nret\n")), &Orders::new()).unwrap();
        let parts = candidate.written_out(&Space::default()).unwrap();
        assert!(parts[0].text.starts_with("__asm__(") && parts[0].text.contains("\"ret\\n\""), "{parts:?}");
        assert_eq!((parts[1].region.as_str(), parts[1].text.as_str()), (SKETCH, "int f() { return 64; }\n"));
        let back: Operator = serde_json::from_str(&serde_json::to_string(&operator).unwrap()).unwrap();
        assert_eq!(back, operator);
    }
}
