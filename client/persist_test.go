package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

func TestPersist(t *testing.T) {
	refused := &Error{}
	refused.Extensions.Code = runtime.CodeInvalidInput
	away := &Error{}
	away.Extensions.Code = runtime.CodeClusterUnavailable
	broken := errors.New("connection reset")
	for _, test := range []struct {
		name     string
		errs     []error // of the attempts; the last one repeats
		attempts int
		took     time.Duration
		want     error
	}{
		{"succeeds", []error{nil}, 1, 0, nil},
		{"refused", []error{refused}, 1, 0, refused},
		{"succeeds later", []error{broken, away, nil}, 3, 300 * time.Millisecond, nil},
		{"refused later", []error{broken, refused}, 2, 100 * time.Millisecond, refused},
		{"server without TLS", []error{fmt.Errorf("post: %w", http.ErrSchemeMismatch)}, 1, 0, http.ErrSchemeMismatch},
		{"never succeeds", []error{broken}, 8, 7100 * time.Millisecond, broken},
	} {
		synctest.Test(t, func(t *testing.T) {
			began, attempts := time.Now(), 0
			err := Persist(context.Background(), 6*time.Second, Passing, func() error {
				attempts++
				return test.errs[min(attempts, len(test.errs))-1]
			})
			if !errors.Is(err, test.want) || attempts != test.attempts || time.Since(began) != test.took {
				t.Errorf("%s: %v after %d attempts and %v", test.name, err, attempts, time.Since(began))
			}
		})
	}
}
