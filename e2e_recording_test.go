package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

// A recording has each piece of output at the time at which it was printed, in
// the format that asciinema's players read.
func TestE2ERecordings(t *testing.T) {
	b := e2e(t)
	runner := b.claim(t, "shell")
	for name, test := range map[string]struct {
		input         object
		width, height int
		text          string
	}{
		"pipes":    {object{}, 120, 32, "one\r\ntwo \"\U0001f600\"\r\n\x1b[31mred\r\n"},
		"terminal": {object{"terminal": object{"columns": 50, "rows": 20}}, 50, 20, "one\r\ntwo \"\U0001f600\"\r\n\x1b[31mred\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			test.input["runnerId"] = runner
			test.input["shell"] = `echo one; sleep 0.3; printf 'two "\360\237'; sleep 0.1; printf '\230\200"\n'; sleep 0.1; printf '\033[31mred\n' >&2`
			x := b.run(t, test.input)
			var out struct{ Execution struct{ OutputURL string } }
			b.call(t, `query($id: ID!) { execution(id: $id) { outputUrl } }`, object{"id": x.ID}, &out)
			lines := bufio.NewScanner(bytes.NewReader(b.download(t, out.Execution.OutputURL+"&format=asciicast")))
			lines.Scan()
			var header struct {
				Version, Width, Height int
				Command                string
			}
			if err := json.Unmarshal(lines.Bytes(), &header); err != nil || header.Version != 2 || header.Width != test.width || header.Height != test.height || !strings.Contains(header.Command, "echo one") {
				t.Errorf("%s: %v", lines.Text(), err)
			}
			var text string
			var last float64
			var pause bool
			for lines.Scan() {
				var event []any
				if err := json.Unmarshal(lines.Bytes(), &event); err != nil || len(event) != 3 || event[1] != "o" {
					t.Fatalf("%s: %v", lines.Text(), err)
				}
				at := event[0].(float64)
				pause = pause || at-last > 0.25
				if at < last {
					t.Errorf("%f comes after %f", at, last)
				}
				last = at
				text += event[2].(string)
			}
			if text != test.text || !pause {
				t.Errorf("%q, the pause was seen: %t", text, pause)
			}
			refused, body, err := b.get(t, http.MethodGet, out.Execution.OutputURL+"&format=gif")
			if err != nil || refused.StatusCode != http.StatusBadRequest || !bytes.Contains(body, []byte("INVALID_INPUT")) {
				t.Errorf("an unknown format: %s %s, %v", refused.Status, body, err)
			}
		})
	}
}
