package clients

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/refusal"
)

// TestTextThatADecoderWouldReplaceIsRefused: the error names the field.
func TestTextThatADecoderWouldReplaceIsRefused(t *testing.T) {
	for text, field := range map[string]string{
		`{"variables": {"input": {"write": [{"path": "a"}, {"path": "b", "text": "\ud800"}]}}}`: "variables.input.write.1.text",
		`{"variables": {"input": {"write": [{"path": "a"}, {"path": "\uDC00b"}], "x": 1}}}`:     "variables.input.write.1.path",
		`{"delete": ["a", {"b": [1, 2]}, "\ud83d\ud83d\ude00"]}`:                                "delete.2",
		`{"a": [], "b": {}, "c": "\ude00\ud83d"}`:                                               "c",
		`{"a": {"b": 1}, "c": "\ud83dx\ude00"}`:                                                 "c",
		`{"c": 1 "\ud83d`:                                                                       "",
		`{"c": "\\\ud83d"}`:                                                                     "c",
		`{"a": 1, "\ud83d": 2}`:                                                                 "",
		`"\ud83d"`:                                                                              "",
		"{\"a\": {\"b\": \"x\xff\"}}":                                                           "a.b",
		"{\"a\": {\"b\": 1}, \"c\": [\"x\", \"\xed\xa0\x80\"]}":                                 "c.1",
		"\xff{}": "",
		`{"a": "` + strings.Repeat("x", maxLocated) + `\ud83d"}`: "",
		`{"a": "` + strings.Repeat("x", maxLocated) + "\xff\"}":  "",
	} {
		_, err := Values([]byte(text))
		refusal.Want(t, err, runtime.CodeInvalidInput, field, text)
	}
	for _, text := range []string{`"\ud83d\ude00"`, `"\\ud83d"`, `"\\\\ud83d"`, `"\ufffd"`, `"\ud7ff\ue000"`, "\"\uFFFD\"", `"\u"`, `"\ud8"`, `"\uzzzz"`, `"\\`} {
		if _, err := Values([]byte(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// FuzzReplacedText compares with the decoder: accepted JSON has no character that it made up.
func FuzzReplacedText(f *testing.F) {
	for _, seed := range []string{`{"a": "\ud83d\ude00"}`, `["\ud83d"]`, `"\\\ude00"`, "\"\xff\""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var decoded string
		if _, err := Values([]byte(text)); err != nil || json.Unmarshal([]byte(text), &decoded) != nil {
			return
		}
		written := strings.Count(text, "\uFFFD") + strings.Count(strings.ToLower(text), `\ufffd`)
		if strings.Count(decoded, string(utf8.RuneError)) > written {
			t.Errorf("%q became %q", text, decoded)
		}
	})
}
