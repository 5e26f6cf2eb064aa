package clients

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// An answer that takes long begins with white space. A fast one doesn't.
func TestSlowAnswersBeginEarly(t *testing.T) {
	for _, test := range []struct {
		takes time.Duration
		sent  bool
		text  string
	}{{time.Second, false, ""}, {9 * time.Second, false, ""}, {11 * time.Second, true, " "}, {35 * time.Second, true, "   "}} {
		synctest.Test(t, func(t *testing.T) {
			w := httptest.NewRecorder()
			sent := Early(w, 10*time.Second, func(header http.Header) { header.Set("Content-Type", "x") }, func() { time.Sleep(test.takes) })
			if sent != test.sent || w.Body.String() != test.text || w.Flushed != test.sent || (w.Header().Get("Content-Type") == "x") != test.sent {
				t.Errorf("%s: %v, %q, %v", test.takes, sent, w.Body, w.Header())
			}
		})
	}
}
