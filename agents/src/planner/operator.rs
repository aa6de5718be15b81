//! The rounds in which an operator is generated: its sketch, its primitives, and what is mended of them (QiMeng-TensorOp §3.2).

use super::talk::{Told, asked};
use super::{BrokeOff, Loop};
use crate::coder::{Generate, Generated, Piece};
use crate::event::Event;
use crate::llm::{Purpose, Role};
use crate::log::LogError;
use crate::search::{Point, Search};
use crate::trajectory::Round;
use kernelbench::assembly::{Assembly, Isa};
use kernelbench::{Bindings, Candidate, Evaluation, Failure, Hash, Operator, Primitives};
use metrics::MachineKind;

impl Loop {
    /// The round of a sketch and its primitives: two calls, or an operator from elsewhere, and their test together.
    pub(super) async fn generate(&mut self, round: u32) -> Result<(), BrokeOff> {
        let operator = match self.known_operator()? {
            Some(known) => Some(known),
            None => match self.search().operator {
                Some(given) => Some(given),
                None => self.sketch_and_primitives(round).await?,
            },
        };
        match operator {
            Some(operator) => self.try_operator(operator).await,
            None => Ok(()),
        }
    }

    /// The round in which the part that failed is written again.
    pub(super) async fn repair(&mut self, round: u32) -> Result<(), BrokeOff> {
        let operator = match self.known_operator()? {
            Some(known) => Some(known),
            None => self.mended(round).await?,
        };
        match operator {
            Some(operator) => self.try_operator(operator).await,
            None => Ok(()),
        }
    }

    pub(super) fn search(&self) -> Search {
        self.policy.search.clone().unwrap_or_default()
    }

    /// Whether an operator is written whole, without primitives.
    fn is_whole(&self) -> bool {
        self.search().primitives == Some(false)
    }

    /// The operator that the open round came to already.
    fn known_operator(&self) -> Result<Option<Operator>, BrokeOff> {
        self.opened(|round| round.operator.clone()).map(|hash| self.operator(&hash)).transpose()
    }

    pub(super) fn operator(&self, hash: &Hash) -> Result<Operator, BrokeOff> {
        let text = self.book.fetch(hash)?;
        serde_json::from_str(&text).map_err(|why| LogError(format!("the operator {hash}: {why}")).into())
    }

    async fn sketch_and_primitives(&mut self, round: u32) -> Result<Option<Operator>, BrokeOff> {
        let Some(operator) = self.sketch(round, None).await? else { return Ok(None) };
        if self.is_whole() {
            return Ok(Some(operator));
        }
        self.primitives(round, operator, None).await
    }

    async fn sketch(&mut self, round: u32, last: Option<(Operator, Failure)>) -> Result<Option<Operator>, BrokeOff> {
        let before = last.as_ref().map(|(operator, _)| operator.primitives.clone());
        let piece = if self.is_whole() { Piece::Whole { last } } else { Piece::Sketch { last } };
        match self.piece(round, Purpose::Sketch, piece).await? {
            Some(Generated::Sketch { text: sketch, tuning }) => {
                Ok(Some(Operator { sketch, tuning, primitives: before.unwrap_or(Primitives::None) }))
            }
            _ => Ok(None),
        }
    }

    async fn primitives(
        &mut self,
        round: u32,
        operator: Operator,
        failure: Option<Failure>,
    ) -> Result<Option<Operator>, BrokeOff> {
        let piece = Piece::Primitives { operator: operator.clone(), failure };
        match self.piece(round, Purpose::Primitives, piece).await? {
            Some(Generated::Primitives(primitives)) => Ok(Some(Operator { primitives, ..operator })),
            _ => Ok(None),
        }
    }

    /// One call; where its reply cannot be read the round is over.
    async fn piece(&mut self, round: u32, purpose: Purpose, piece: Piece) -> Result<Option<Generated>, BrokeOff> {
        let (task, machine, generator) = (self.task.clone(), self.crew.machine.clone(), self.crew.generator.clone());
        let told = self.ask_twice(round, Role::Coder, purpose, |call, earlier| {
            let (task, machine, piece) = (task.clone(), machine.clone(), piece.clone());
            asked(&generator, Generate { call, task, machine, piece, earlier })
        });
        match told.await? {
            Told::Read(generated) => Ok(Some(generated)),
            Told::Unreadable(why) => self.unreadable(Role::Coder, why),
            Told::PassedOver => self.unreadable(Role::Coder, "the recorded reply does not fit".to_owned()),
        }
    }

    /// The last operator with the part that failed written again.
    async fn mended(&mut self, round: u32) -> Result<Option<Operator>, BrokeOff> {
        let failed = |round: &Round| match (&round.operator, &round.evaluation) {
            (Some(operator), Some(Evaluation::Failed(failure))) => Some((operator.clone(), failure.clone())),
            _ => None,
        };
        let rounds = &self.book.so_far().rounds;
        let repairs = rounds.iter().filter(|round| failed(round).is_some()).count();
        let last = rounds.iter().rev().find_map(failed);
        let (hash, failure) =
            last.ok_or_else(|| BrokeOff::Gone("a repair has no operator in the record".to_owned()))?;
        let operator = self.operator(&hash)?;
        if of_sketch(&failure, &operator, repairs) {
            self.sketch(round, Some((operator, failure))).await
        } else {
            self.primitives(round, operator, Some(failure)).await
        }
    }

    /// Builds and tests an operator with the values that tuning begins at. A script that fails is a failed candidate: the
    /// sketch alone stands for it in the record.
    async fn try_operator(&mut self, operator: Operator) -> Result<(), BrokeOff> {
        if self.opened(|round| round.operator.is_none()) {
            let text = serde_json::to_string(&operator).map_err(|e| LogError(e.to_string()))?;
            let operator = self.book.keep(&text)?;
            self.note(Event::Generated { operator })?;
        }
        let bindings = operator.first().map_err(BrokeOff::Refused)?;
        let point = Point { bindings, ..Point::default() };
        match self.materialized(&operator, &point).await? {
            Ok(candidate) => {
                self.keep_candidate(&candidate)?;
                self.examine(candidate).await
            }
            Err(failure) => {
                let sketch = operator.candidate(&point.bindings, None, &point.orders).map_err(BrokeOff::Refused)?;
                self.keep_candidate(&sketch)?;
                self.note(Event::Evaluated { candidate: sketch.id(), evaluation: Evaluation::Failed(failure) })
            }
        }
    }

    /// An operator at a point as a candidate; how its script failed where it did.
    pub(super) async fn materialized(
        &mut self,
        operator: &Operator,
        point: &Point,
    ) -> Result<Result<Candidate, Failure>, BrokeOff> {
        let printed = match operator.script() {
            Some(script) => match self.printed(script, &point.bindings).await? {
                Ok(text) => Some(text),
                Err(failure) => return Ok(Err(failure)),
            },
            None => None,
        };
        let isa = self.isa()?;
        let printed = printed.as_deref().map(|text| (isa, text));
        let candidate = operator.candidate(&point.bindings, printed, &point.orders);
        Ok(candidate
            .map_err(|why| Failure::Build { log: format!("primitives.py: what it printed is not taken: {why}") }))
    }

    /// What an operator's script prints for these values, read; none where no script prints.
    pub(super) async fn assembly(
        &mut self,
        operator: &Operator,
        bindings: &Bindings,
    ) -> Result<Option<Assembly>, BrokeOff> {
        let Some(script) = operator.script() else { return Ok(None) };
        let isa = self.isa()?;
        Ok(self.printed(script, bindings).await?.ok().and_then(|text| Assembly::parse(isa, &text).ok()))
    }

    /// What a script prints for these values; it runs once for them.
    async fn printed(&mut self, script: &str, bindings: &Bindings) -> Result<Result<String, Failure>, BrokeOff> {
        let id = Hash::of(script.as_bytes());
        let known = self.book.so_far().printed.get(&(id.clone(), bindings.clone())).cloned();
        if let Some(known) = known {
            return Ok(match known {
                Ok(text) => Ok(self.book.fetch(&text)?),
                Err(failure) => Err(failure),
            });
        }
        let print = crate::tester::Print { script: script.to_owned(), bindings: bindings.clone() };
        let told = asked(&self.crew.tester.print, print).await?;
        let text = match &told {
            Ok(text) => Ok(self.book.keep(text)?),
            Err(failure) => Err(failure.clone()),
        };
        self.note(Event::Printed { script: id, bindings: bindings.clone(), text })?;
        Ok(told)
    }

    fn isa(&self) -> Result<Isa, BrokeOff> {
        let machine = &self.crew.machine;
        let known = if machine.kind == MachineKind::Cpu { Isa::of(&machine.arch.to_string()) } else { Some(Isa::X86) };
        known.ok_or_else(|| {
            let arch = &machine.arch;
            BrokeOff::Refused(format!(
                "there is no table of instructions for {arch}; there are x86_64, aarch64 and riscv64"
            ))
        })
    }
}

/// Whether a failure goes back to the sketch: a message that names it alone, another entry; what is wrong at run time goes
/// to the primitives first, and to each in turn after that.
fn of_sketch(failure: &Failure, operator: &Operator, repairs: usize) -> bool {
    if operator.primitives == Primitives::None {
        return true;
    }
    match failure {
        Failure::Interface { .. } => true,
        Failure::Build { log } => {
            let names = |part: &str| ["cpp", "cu", "c"].iter().any(|ending| log.contains(&format!("{part}.{ending}:")));
            names("sketch") && !log.contains("primitives.") && !log.contains("undefined reference")
        }
        _ => repairs.is_multiple_of(2),
    }
}
