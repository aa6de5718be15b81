//! What does a call cost?

use super::Usage;
use serde::Deserialize;
use std::collections::BTreeMap;

const EMBEDDED: &str = include_str!("../../prices.toml");

/// Prices by model. A model that it does not hold has no price: none is guessed.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PriceTable {
    as_of: String,
    source: String,
    #[serde(default)]
    batched: Option<f64>,
    models: BTreeMap<String, Price>,
}

/// US dollars per million tokens.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// Tokens of the prompt.
    pub input: f64,
    /// Tokens of the prompt that came from the provider's cache.
    pub cached: f64,
    /// Tokens of the reply, reasoning included.
    pub output: f64,
}

impl PriceTable {
    /// The table that comes with the program.
    ///
    /// # Panics
    ///
    /// Never: a test reads it.
    #[must_use]
    pub fn embedded() -> Self {
        Self::parse(EMBEDDED).expect("the embedded price table is read by a test")
    }

    /// Reads a table: `as_of`, `source`, `batched` where a batch has another price, and under `[models]` a line `"name" = { input = .., cached = .., output = .. }` each.
    ///
    /// # Errors
    ///
    /// Where the text is wrong, and what was expected.
    pub fn parse(text: &str) -> Result<Self, String> {
        let table: Self = toml::from_str(text).map_err(|e| e.to_string())?;
        if table.batched.is_some_and(|part| !(0.0..=1.0).contains(&part)) {
            return Err("batched is no part of the price: a number from 0 to 1 was expected".into());
        }
        for (model, price) in &table.models {
            if [price.input, price.cached, price.output].iter().any(|p| !p.is_finite() || *p < 0.0) {
                return Err(format!(
                    "the price of {model} is negative or no number; dollars per million tokens were expected"
                ));
            }
        }
        Ok(table)
    }

    /// This table, with the other's models in place of its own where both have them.
    #[must_use]
    pub fn overridden_by(mut self, other: Self) -> Self {
        self.models.extend(other.models);
        self.batched = other.batched.or(self.batched);
        self.as_of = format!("{}, and {}", self.as_of, other.as_of);
        self.source = format!("{}, and {}", self.source, other.source);
        self
    }

    /// When and where the prices were taken from, for reports.
    #[must_use]
    pub fn provenance(&self) -> String {
        format!("prices as of {} ({})", self.as_of, self.source)
    }

    /// The price of this model; a name that ends in a date (`-2025-04-16`) is that of the name without it.
    #[must_use]
    pub fn price(&self, model: &str) -> Option<Price> {
        self.models.get(model).or_else(|| self.models.get(undated(model)?)).copied()
    }

    /// Which part of the price a token costs in a batch; all of it where the table does not say.
    #[must_use]
    pub fn batched(&self) -> f64 {
        self.batched.unwrap_or(1.0)
    }

    /// What these tokens cost, in US dollars.
    #[must_use]
    pub fn usd(&self, model: &str, usage: &Usage) -> Option<f64> {
        let price = self.price(model)?;
        let cached = usage.cached_tokens.min(usage.input_tokens);
        let fresh = usage.input_tokens - cached;
        let dollars = |tokens: u64, per_million: f64| tokens as f64 * per_million / 1e6;
        Some(dollars(fresh, price.input) + dollars(cached, price.cached) + dollars(usage.output_tokens, price.output))
    }
}

fn undated(model: &str) -> Option<&str> {
    let (name, date) = model.split_at_checked(model.len().checked_sub(11)?)?;
    let shape = date.chars().map(|c| if c.is_ascii_digit() { '0' } else { c });
    shape.eq("-0000-00-00".chars()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const USAGE: Usage =
        Usage { input_tokens: 3_000_000, cached_tokens: 1_000_000, output_tokens: 500_000, reasoning_tokens: 400_000 };

    #[test]
    fn cached_tokens_cost_the_cached_price_and_reasoning_is_counted_once() {
        let usd = PriceTable::embedded().usd("o4-mini-2025-04-16", &USAGE).unwrap();
        assert!((usd - (2.0 * 1.1 + 0.275 + 0.5 * 4.4)).abs() < 1e-9, "{usd}");
    }

    #[test]
    fn the_price_of_an_unknown_model_is_not_guessed() {
        let table = PriceTable::embedded();
        for model in ["", "gpt-5-turbo", "o4-mini-high", "my-gpt-5", "gpt-5-2025-08", "é-2025-08-07"] {
            assert_eq!(table.usd(model, &USAGE), None, "{model}");
        }
    }

    #[test]
    fn a_users_table_replaces_prices_one_by_one() {
        let own = "as_of = 'today'\nsource = 'my contract'\n[models]\no3 = { input = 1, cached = 1, output = 1 }\n";
        let table = PriceTable::embedded().overridden_by(PriceTable::parse(own).unwrap());
        assert_eq!(table.price("o3"), Some(Price { input: 1.0, cached: 1.0, output: 1.0 }));
        assert_eq!(table.price("o4-mini"), PriceTable::embedded().price("o4-mini"));
        assert!(table.provenance().contains("my contract"));
    }

    #[test]
    fn a_price_below_zero_is_refused_by_name() {
        let wrong = "as_of = ''\nsource = ''\n[models]\nfree = { input = -1.0, cached = 0.0, output = 0.0 }\n";
        assert!(PriceTable::parse(wrong).unwrap_err().contains("free"));
    }
}
