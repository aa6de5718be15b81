//! A person has a transformation said otherwise, or leaves it out.

use super::workflow::Request;
use super::{BrokeOff, Loop};
use crate::event::Event;
use crate::llm::AskError;
use crate::workflow::Order;

impl Loop {
    /// Ends the round as the person wants: with the same transformation in other words, or without it.
    pub(super) fn steered(&mut self, order: &Order, wish: AskError) -> Result<(), BrokeOff> {
        let transformation = order.transformation.clone();
        match wish {
            AskError::Skipped => self.note(Event::Steered { transformation, say: None }),
            AskError::Rephrased(say) => {
                self.note(Event::Steered { transformation: transformation.clone(), say: Some(say.clone()) })?;
                let from = Some(order.from.clone());
                let request =
                    Request { from, say: Some(say), tries: Some(order.tries), ..Request::of(&transformation) };
                self.order(&transformation, order.from.clone(), Some(request))
            }
            other => Err(BrokeOff::Model(other)),
        }
    }
}
