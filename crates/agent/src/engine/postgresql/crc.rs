//! CRC-32C, with which PostgreSQL protects each record of its log.

const TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0_u32; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut value = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { (value >> 1) ^ 0x82F6_3B78 } else { value >> 1 };
            bit += 1;
        }
        tables[0][byte] = value;
        byte += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut byte = 0;
        while byte < 256 {
            let value = tables[table - 1][byte];
            tables[table][byte] = (value >> 8) ^ tables[0][(value & 0xFF) as usize];
            byte += 1;
        }
        table += 1;
    }
    tables
}

/// The checksum of the parts, one after the other. Eight bytes a step: a scan of two segments stays within
/// milliseconds.
pub(super) fn crc32c(parts: &[&[u8]]) -> u32 {
    let mut crc = u32::MAX;
    let at = |table: usize, index: u32| TABLES[table][(index & 0xFF) as usize];
    for part in parts {
        let mut chunks = part.chunks_exact(8);
        for chunk in &mut chunks {
            let low = crc ^ u32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]);
            let high = u32::from_le_bytes([chunk[4], chunk[5], chunk[6], chunk[7]]);
            crc = at(7, low) ^ at(6, low >> 8) ^ at(5, low >> 16) ^ at(4, low >> 24);
            crc ^= at(3, high) ^ at(2, high >> 8) ^ at(1, high >> 16) ^ at(0, high >> 24);
        }
        for byte in chunks.remainder() {
            crc = (crc >> 8) ^ at(0, crc ^ u32::from(*byte));
        }
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_check_value_comes_out_however_the_input_is_cut() {
        assert_eq!(crc32c(&[b"123456789"]), 0xE306_9283);
        assert_eq!(crc32c(&[b"1", b"2345678", b"9"]), 0xE306_9283);
    }
}
