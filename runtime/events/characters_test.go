package events

import (
	"testing"

	"github.com/rockpool/rockpool/runtime"
)

func TestSplitCharactersAreJoined(t *testing.T) {
	c := Characters{}
	for _, step := range []struct {
		stream     runtime.Stream
		came, want string
	}{
		{runtime.Stdout, "a\xf0\x9f", "a"},
		{runtime.Stderr, "\xc3", ""},
		{runtime.Stdout, "\x98", ""},
		{runtime.Stderr, "\xa9!", "é!"},
		{runtime.Stdout, "\x80b", "\U0001f600b"},
		{runtime.Stdout, "\xff\x80\x80\x80\x80", "\xff\x80\x80\x80\x80"}, // that never become any
		{runtime.Stdout, "\xe2\x82", ""},
	} {
		if got := string(c.Whole(step.stream, []byte(step.came))); got != step.want {
			t.Errorf("%q on %s became %q, not %q", step.came, step.stream, got, step.want)
		}
	}
	if left := string(c[runtime.Stdout]) + string(c[runtime.Stderr]); left != "\xe2\x82" {
		t.Errorf("%q is left", left)
	}
}
