package plain

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strconv"
)

// mostInLine keeps a line of a value below what a terminal takes in one (4095).
const mostInLine = 1000

// appendValue appends a value as the scripts' next reads it. A value is data: no
// byte of it means anything to a shell. It must be without NUL.
func appendValue(b []byte, value string) []byte {
	for {
		line := len(b)
		b = append(b, '.')
		i := 0
		for ; i < len(value) && len(b)-line < mostInLine; i++ {
			switch c := value[i]; {
			case c < ' ' || c == '\\' || c > '~':
				b = fmt.Appendf(b, `\0%03o`, c)
			default:
				b = append(b, c)
			}
		}
		b = append(b, '\n')
		if value = value[i:]; value == "" {
			return b
		}
		b[line] = '+'
	}
}

// values encodes values, one after the other.
func values(all ...string) []byte {
	var b []byte
	for _, value := range all {
		b = appendValue(b, value)
	}
	return b
}

// list encodes how many values there are, and the values.
func list(all []string) []byte {
	return append(values(strconv.Itoa(len(all))), values(all...)...)
}

// secret returns something that nobody guesses.
func secret() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	return hex.EncodeToString(b[:])
}
