//! Are blocks found, and do only independent instructions change places?

use super::*;

const TEXT: &str = "
.globl COMPUTE
COMPUTE:
.Lloop:
# block: load
    vmovups ymm0, [rsi]        # two vectors of B
    vmovups ymm1, [rsi+32]
# block: compute
    vbroadcastss ymm2, dword ptr [rdi]
    vfmadd231ps ymm4, ymm2, ymm0
    vfmadd231ps ymm5, ymm2, ymm1
    vbroadcastss ymm3, dword ptr [rdi+4]
    vfmadd231ps ymm6, ymm3, ymm0
    vfmadd231ps ymm7, ymm3, ymm1
# end
    add rsi, 64
    add rdi, 8
    dec rcx
    jnz .Lloop
    vzeroupper
    ret
";

fn assembly() -> Assembly {
    Assembly::parse(Isa::X86, TEXT).unwrap()
}

#[test]
fn blocks_are_found_by_their_markers_and_end_at_branches_and_labels() {
    let blocks: Vec<(String, usize)> = assembly().blocks().iter().map(|b| (b.name.clone(), b.len())).collect();
    assert_eq!(blocks, [("load".to_owned(), 2), ("compute".to_owned(), 6)]);
    let branch = TEXT.replace("    vfmadd231ps ymm6", "    jz .Lloop\n    vfmadd231ps ymm6");
    assert_eq!(Assembly::parse(Isa::X86, &branch).unwrap().blocks()[1].len(), 4, "what is behind a branch is outside");
    let twice = TEXT.replace("# end", "# block: load\n    vmovups ymm8, [rsi]\n# end");
    assert_eq!(Assembly::parse(Isa::X86, &twice).unwrap().blocks()[2].name, "load.2");
}

#[test]
fn only_what_depends_on_nothing_that_it_overtakes_changes_places() {
    let assembly = assembly();
    assert_eq!(assembly.may_swap("load", 0, 1), Ok(()));
    assert_eq!(assembly.may_swap("compute", 1, 2), Ok(()));
    assert_eq!(assembly.may_swap("compute", 2, 3), Ok(()));
    let why = assembly.may_swap("compute", 0, 2).unwrap_err();
    assert_eq!(why, "`compute`: the instructions at 0 and 1 depend on each other");
    assert!(assembly.may_swap("compute", 3, 5).unwrap_err().contains("3 and 4"), "the broadcast is read at 4");
    for (block, one, other) in [("store", 0, 1), ("load", 0, 2), ("load", 1, 1)] {
        assert!(assembly.may_swap(block, one, other).is_err());
    }
    let unknown = Assembly::parse(Isa::X86, &TEXT.replace("vmovups ymm1", "vgatherdps ymm1")).unwrap();
    assert!(unknown.may_swap("load", 0, 1).is_err(), "an unknown instruction never moves");
}

#[test]
fn an_order_is_the_swaps_that_led_to_it_and_the_printed_order_is_none() {
    let (before, mut orders) = (assembly(), Orders::new());
    let block = before.blocks()[1].clone();
    swap_in(&mut orders, &block, 2, 3);
    swap_in(&mut orders, &block, 1, 2);
    let swapped = before.swapped("compute", 2, 3).unwrap().swapped("compute", 1, 2).unwrap();
    assert_eq!(before.ordered(&orders).unwrap().in_c(), swapped.in_c());
    swap_in(&mut orders, &block, 1, 2);
    swap_in(&mut orders, &block, 2, 3);
    assert!(orders.is_empty(), "{orders:?}");
    let wrong: Orders = [("load".to_owned(), vec![0, 0])].into();
    assert!(before.ordered(&wrong).unwrap_err().contains("not one of its 2 instructions"));
}

#[test]
fn an_order_is_carried_to_a_block_that_reads_the_same_and_to_no_other() {
    let orders: Orders = [("load".to_owned(), vec![1, 0]), ("compute".to_owned(), vec![0, 2, 1, 3, 4, 5])].into();
    let unrolled = Assembly::parse(Isa::X86, &TEXT.replace("ymm6, ymm3", "ymm8, ymm3")).unwrap();
    let carried = unrolled.carried(&assembly(), &orders);
    assert_eq!(carried.keys().collect::<Vec<_>>(), ["load"]);
}

#[test]
fn what_reads_files_or_hides_instructions_is_refused_with_its_line() {
    for (line, why) in [
        (".incbin \"/etc/passwd\"", "line 1: `.incbin \"/etc/passwd\"`: the directive `.incbin` is not taken"),
        (".include \"x.s\"", ".include"),
        ("start: .incbin \"x\"", ".incbin"),
        (".rept 1000000000", ".rept"),
        ("nop; .incbin \"x\"", "expected one statement a line"),
        ("/* .text", "expected remarks of one line"),
    ] {
        let told = Assembly::parse(Isa::X86, &format!("{line}\nret\n")).unwrap_err();
        assert!(told.contains(why), "{told}");
    }
    assert!(Assembly::parse(Isa::X86, "# nothing\n.text\n").unwrap_err().contains("no instruction"));
}

#[test]
fn text_in_c_keeps_every_line_and_escapes_quotes() {
    let text = Assembly::parse(Isa::X86, ".section .note.GNU-stack,\"\",@progbits\nret\n").unwrap().in_c();
    let expected = "__asm__(\n\".intel_syntax noprefix\\n\"\n\".section .note.GNU-stack,\\\"\\\",@progbits\\n\"\n\"ret\\n\"\n\
                    \".att_syntax prefix\\n\"\n);\n";
    assert_eq!(text, expected);
}
