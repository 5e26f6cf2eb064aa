package download

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
)

// A download of output ends with the token or grant of its caller.
func TestDownloadsEndWithTheirCaller(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	w := &watched{ReadSeeker: bytes.NewReader(make([]byte, 100)), ended: ctx.Err}
	if n, err := io.ReadFull(w, make([]byte, 10)); n != 10 || err != nil || w.failed != nil {
		t.Fatalf("%d, %v", n, err)
	}
	end()
	if n, err := w.Read(make([]byte, 10)); n != 0 || !errors.Is(err, context.Canceled) || !errors.Is(w.failed, context.Canceled) {
		t.Errorf("%d, %v, %v", n, err, w.failed)
	}
}
