package jobe

import (
	"strings"
	"unicode/utf8"
)

// printable returns output for JSON. Valid UTF-8 is unchanged. In other output each byte except
// printable ASCII, tab, CR and LF becomes \xHH.
func printable(output []byte) string {
	if utf8.Valid(output) {
		return string(output)
	}
	const digits = "0123456789abcdef"
	var b strings.Builder
	for _, c := range output {
		if c > 0x7e || c < ' ' && c != '\t' && c != '\r' && c != '\n' {
			b.Write([]byte{'\\', 'x', digits[c>>4], digits[c&0xf]})
			continue
		}
		b.WriteByte(c)
	}
	return b.String()
}
