// Package paths has the rules for paths in runners, for the server, the agent and the commands. A
// path's bytes are literal: *, ~, \ and a leading dash have no meaning.
//
// The API and the agent's protocol carry a path as text. A byte that isn't part of valid UTF-8 is
// U+FFFD and two hexadecimal digits there, and so is each of the three bytes of U+FFFD itself. So
// each path has exactly one text, and each text at most one path.
package paths

import (
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"strings"
	"unicode/utf8"
)

// The kernel's limits, in bytes (PATH_MAX without its NUL, and NAME_MAX).
const (
	MaxBytes     = 4095
	MaxNameBytes = 255
)

// mark begins a byte that isn't text.
const mark = "\uFFFD"

// Text returns the text of any bytes, for example of a file's name.
func Text(raw string) string {
	if utf8.ValidString(raw) && !strings.Contains(raw, mark) {
		return raw
	}
	var text strings.Builder
	for len(raw) > 0 {
		r, size := utf8.DecodeRuneInString(raw)
		for i := range size {
			if r == utf8.RuneError {
				fmt.Fprintf(&text, mark+"%02x", raw[i])
			} else {
				text.WriteByte(raw[i])
			}
		}
		raw = raw[size:]
	}
	return text.String()
}

// Bytes returns the bytes of a text. It refuses a text that Text never returns, for example one in
// which a client has replaced bytes with U+FFFD.
func Bytes(text string) (string, error) {
	if !utf8.ValidString(text) {
		return "", errors.New("must be valid UTF-8: write a byte that isn't as U+FFFD and two hexadecimal digits, as in lists of files")
	}
	before, rest, marked := strings.Cut(text, mark)
	if !marked {
		return text, nil
	}
	var raw strings.Builder
	raw.WriteString(before)
	for part := range strings.SplitSeq(rest, mark) {
		value, err := hex.DecodeString(part[:min(2, len(part))])
		if err != nil {
			return "", errReplaced
		}
		raw.Write(value)
		raw.WriteString(part[len(value)*2:])
	}
	if Text(raw.String()) != text {
		return "", errReplaced
	}
	return raw.String(), nil
}

// errReplaced is the error for a text with a wrong U+FFFD.
var errReplaced = errors.New("has U+FFFD, which stands for a byte that isn't UTF-8 only with the byte's two hexadecimal digits after it: use names unchanged, as lists of files have them")

// Given returns the text of a path that a person gives. It may be a text already, for example copied from a
// list, or have the bytes of a name.
func Given(path string) string {
	if _, err := Bytes(path); err != nil {
		return Text(path)
	}
	return path
}

// Parse returns the bytes of a path's text. Its error says which rule the path breaks.
func Parse(text string) (string, error) {
	raw, err := Bytes(text)
	switch {
	case err != nil:
		return "", err
	case raw == "" || len(raw) > MaxBytes || strings.IndexByte(raw, 0) >= 0:
		return "", fmt.Errorf("must be 1 to %d bytes without NUL", MaxBytes)
	}
	for name := range strings.SplitSeq(raw, "/") {
		if len(name) > MaxNameBytes {
			return "", fmt.Errorf("must have no name of more than %d bytes", MaxNameBytes)
		}
	}
	return raw, nil
}

// Resolve returns the absolute path of p, which is absolute or relative to dir. It resolves ".",
// ".." and repeated slashes as text, whatever exists there.
func Resolve(dir, p string) string {
	if path.IsAbs(p) {
		return path.Clean(p)
	}
	return path.Join(dir, p)
}

// IsDirectory reports whether p can only be a directory, because it ends in "/", "/." or "/..".
func IsDirectory(p string) bool {
	last := p[strings.LastIndexByte(p, '/')+1:]
	return last == "" || last == "." || last == ".."
}
