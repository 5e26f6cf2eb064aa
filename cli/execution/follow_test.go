package execution

import (
	"bytes"
	"testing"
)

func TestWordsMoveNoCursor(t *testing.T) {
	var errs bytes.Buffer
	(&Follower{Err: &errs, newline: "\r\n"}).Say("%s", "one\x1b\ntwo")
	if errs.String() != "rockpool: one·\r\ntwo\r\n" {
		t.Errorf("%q", errs.String())
	}
}
