package output

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
)

func TestTablesDontControlTheTerminal(t *testing.T) {
	var out bytes.Buffer
	evil := Table{Head: []string{"NAME", "X"}, Rows: [][]string{{"a\x1b[2J\nb\t\u009b1m\x7f", "é 🐟"}}}
	if err := evil.write(&out); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); strings.Count(got, "\n") != 2 || strings.ContainsAny(got, "\x1b\t\x7f\u009b") || !strings.Contains(got, "é 🐟") {
		t.Errorf("%q", got)
	}
}

// TestTablesHideNothing checks that no character is invisible or changes the direction of others.
func TestTablesHideNothing(t *testing.T) {
	for text, want := range map[string]string{
		"safe\u202etxt.exe":           "safe·txt.exe",
		"\u2066a\u2069\u200eb\ufeff":  "·a··b·",
		"ro\u200bot pay\u200dpal":     "ro·ot pay·pal",
		"tag\U000e0041\u2028":         "tag··",
		"👩\u200d💻 é می\u200cخواهم 日本": "👩\u200d💻 é می\u200cخواهم 日本",
		"שלום": "שלום",
	} {
		if got := Plain(text); got != want {
			t.Errorf("%+q: %+q, not %+q", text, got, want)
		}
		said, err := json.Marshal(map[string]string{"a": text})
		if err != nil {
			t.Fatal(err)
		}
		escaped, _ := Escape(said)
		var back map[string]string
		if err := json.Unmarshal(escaped, &back); err != nil || back["a"] != text || strings.ContainsAny(string(escaped), "\u202e\u2066\u200b\ufeff\U000e0041") {
			t.Errorf("%+q: %s, %v", text, escaped, err)
		}
	}
}

func TestScriptOutputIsTheAPIsResponse(t *testing.T) {
	said := json.RawMessage(`{"id": "a<b", "big": 9007199254740993, "none": null, "list": [], "text": "yes"}`)
	for format, want := range map[string]string{
		"json": "{\n  \"id\": \"a<b\",\n  \"big\": 9007199254740993,\n  \"none\": null,\n  \"list\": [],\n  \"text\": \"yes\"\n}\n",
		"yaml": "id: a<b\nbig: 9007199254740993\nnone: null\nlist: []\ntext: \"yes\"\n",
	} {
		var out bytes.Buffer
		if err := (Format{Output: format}).Print(&out, said, Table{}); err != nil || out.String() != want {
			t.Errorf("%s: %v %q", format, err, out.String())
		}
	}
	var out bytes.Buffer
	if err := (Format{Output: "table", JSON: true}).Print(&out, []int{}, Table{}); err != nil || out.String() != "[]\n" {
		t.Errorf("%v %q", err, out.String())
	}
}

func TestAgo(t *testing.T) {
	now := time.Now()
	for d, want := range map[time.Duration]string{
		-5*time.Second - time.Millisecond: "5 s ago", -3*time.Minute - time.Second: "3 min ago", -5*time.Hour - time.Second: "5 h ago",
		-72*time.Hour - time.Second: "3 days ago", 5*time.Minute + 30*time.Second: "5 min from now",
	} {
		moment := now.Add(d)
		if got := Ago(&moment); got != want {
			t.Errorf("%v: got %s, want %s", d, got, want)
		}
	}
	if Ago(nil) != "-" {
		t.Error(Ago(nil))
	}
}

// TestScriptOutputDoesntControlTheTerminal checks that control characters are escaped and decode to
// the same text.
func TestScriptOutputDoesntControlTheTerminal(t *testing.T) {
	const all = "a\x1b[2J\u009b1m\x7f\u0085\r\n\tb\\u é 🐟"
	for _, of := range [][2]string{{"json", all}, {"yaml", all}, {"yaml", "x\x1b[31m"}, {"yaml", "x\u009b31m"}, {"yaml", "x\x7f"}, {"yaml", "x\ry"}} {
		format, evil := of[0], of[1]
		said, _ := json.Marshal(map[string]string{"text": evil})
		var out bytes.Buffer
		if err := (Format{Output: format}).Print(&out, json.RawMessage(said), Table{}); err != nil {
			t.Fatal(err)
		}
		var back struct{ Text string }
		if err := yaml.Unmarshal(out.Bytes(), &back); err != nil || back.Text != evil || strings.ContainsAny(out.String(), "\x1b\x7f\u009b\u0085\r\t") {
			t.Errorf("%s: %v %q %q", format, err, out.String(), back.Text)
		}
	}
}
