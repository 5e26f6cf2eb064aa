package poseidon

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/events"
)

// collect returns an output that keeps its frames.
func collect(frames *[]string) output {
	return output{send: func(frame []byte) error { *frames = append(*frames, string(frame)); return nil }}
}

func TestFramesOfOutput(t *testing.T) {
	var got []string
	out := collect(&got)
	var begun runtime.Characters
	printed := func(stream runtime.Stream, data string) events.Event { // as a reader returns it
		event := events.Event{Kind: events.Output, Stream: stream, Data: []byte(data)}
		event.Begun, event.Cut = begun.Add(stream, event.Data)
		return event
	}
	rest := func() events.Event {
		event := events.Event{Kind: events.Output, Stream: runtime.Stdout, Begun: begun[0]}
		begun[0] = ""
		return event
	}
	for _, event := range []events.Event{
		{Kind: events.Started},
		printed(runtime.Stdout, "<a>&\u2028\x00\xf0\x9f"), // a character that comes in pieces
		printed(runtime.Stderr, "\xc3"),
		printed(runtime.Stdout, "\x98\x80"),
		printed(runtime.Stderr, "\xa9\r\n"),
		printed(runtime.Stdout, "\xff\xe2\x82"), // what is no character, and half of one
		rest(),
		{Kind: events.Lost, Reason: "the disk is full"},
		printed(runtime.Stdout, "\xac\xe2"),
		rest(),
		{Kind: events.Finished, Execution: runtime.Execution{End: runtime.End{Outcome: runtime.OutcomeExited, ExitCode: 3}}},
	} {
		if err := out.event(event); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		`{"type":"start"}`,
		`{"type":"stdout","data":"<a>&\u2028\u0000"}`,
		`{"type":"stdout","data":"😀"}`,
		`{"type":"stderr","data":"é\r\n"}`,
		`{"type":"stdout","data":"�"}`,
		`{"type":"stdout","data":"��"}`,
		`{"type":"stderr","data":"\r\n[output is missing here: the disk is full]\r\n"}`,
		`{"type":"stdout","data":"�"}`,
		`{"type":"stdout","data":"�"}`,
		`{"type":"exit","data":3}`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s\ninstead of\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestLastFrameReportsTheEnd(t *testing.T) {
	for _, test := range []struct {
		end  runtime.End
		want string
	}{
		{runtime.End{Outcome: runtime.OutcomeExited, ExitCode: 255}, `{"type":"exit","data":255}`},
		{runtime.End{Outcome: runtime.OutcomeSignaled, Signal: "SIGKILL"}, `{"type":"exit","data":137}`},
		{runtime.End{Outcome: runtime.OutcomeSignaled, Signal: "SIGQUIT"}, `{"type":"exit","data":131}`},
		{runtime.End{Outcome: runtime.OutcomeSignaled, Signal: "unknown"}, `{"type":"exit","data":128}`},
		{runtime.End{Outcome: runtime.OutcomeTimeLimit, Message: "m"}, `{"type":"timeout"}`},
		{runtime.End{Outcome: runtime.OutcomeCPULimit, Message: "m"}, `{"type":"timeout"}`},
		{runtime.End{Outcome: runtime.OutcomeMemoryLimit, Message: "m"}, `{"type":"error","data":"the allocation was OOM Killed"}`},
		{runtime.End{Outcome: runtime.OutcomeRunnerGone, GoneReason: runtime.GoneOutOfMemory, Message: "m"}, `{"type":"error","data":"the allocation was OOM Killed"}`},
		{runtime.End{Outcome: runtime.OutcomeRunnerGone, GoneReason: runtime.GoneInactivity, Message: "m"}, `{"type":"timeout"}`},
		{runtime.End{Outcome: runtime.OutcomeRunnerGone, GoneReason: runtime.GoneEvicted, Message: "m"}, `{"type":"error","data":"m"}`},
		{runtime.End{Outcome: runtime.OutcomeProcessLimit, Message: "m"}, "{\"type\":\"stderr\",\"data\":\"\\r\\nm\\r\\n\"}\n{\"type\":\"exit\",\"data\":1}"},
		{runtime.End{Outcome: runtime.OutcomeOutputLimit, Message: "m"}, `{"type":"error","data":"m"}`},
		{runtime.End{Outcome: runtime.OutcomeLost, Message: "m"}, `{"type":"error","data":"m"}`},
		{runtime.End{Outcome: runtime.OutcomeFailed, Message: "m"}, `{"type":"error","data":"m"}`},
		{runtime.End{Outcome: runtime.OutcomeCancelled, Message: "m"}, `{"type":"error","data":"m"}`},
	} {
		var got []string
		if err := collect(&got).end(test.end); err != nil || strings.Join(got, "\n") != test.want {
			t.Errorf("%+v: %q, %v", test.end, got, err)
		}
	}
}

// FuzzFrames splits output anywhere. Each frame is JSON with exactly its fields, and together they
// are the text.
func FuzzFrames(f *testing.F) {
	f.Add([]byte("a\xf0\x9f\x98\x80\xff<&>\u2028"), byte(2))
	f.Add([]byte("\xe2\x82\xac\xe2\x82"), byte(1))
	f.Fuzz(func(t *testing.T, data []byte, size byte) {
		var frames []string
		out := collect(&frames)
		var begun runtime.Characters
		pieces := slices.Collect(slices.Chunk(data, int(size)+1))
		for i := range len(pieces) + 1 { // as a reader returns them
			event := events.Event{Kind: events.Output, Stream: runtime.Stdout, Begun: begun[0]}
			if i < len(pieces) {
				event.Data = bytes.Clone(pieces[i])
				event.Begun, event.Cut = begun.Add(event.Stream, event.Data)
			}
			if err := out.event(event); err != nil {
				t.Fatal(err)
			}
		}
		if err := out.event(events.Event{Kind: events.Finished, Execution: runtime.Execution{End: runtime.End{Outcome: runtime.OutcomeExited}}}); err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		for i, frame := range frames {
			var fields map[string]any
			if err := json.Unmarshal([]byte(frame), &fields); err != nil || !utf8.ValidString(frame) || len(fields) != 2 {
				t.Fatalf("%q: %v", frame, err)
			}
			if printed, isText := fields["data"].(string); isText != (i < len(frames)-1) {
				t.Fatalf("%q is frame %d of %d", frame, i, len(frames))
			} else {
				text.WriteString(printed)
			}
		}
		if want := string([]rune(string(data))); text.String() != want {
			t.Errorf("%q became %q, want %q", data, text.String(), want)
		}
	})
}
