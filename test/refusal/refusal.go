// Package refusal checks errors in tests by what programs read: the code and the field.
package refusal

import (
	"errors"
	"fmt"
	"testing"

	"github.com/rockpool/rockpool/runtime"
)

// Want fails the test if err isn't a [runtime.Error] with this code and field; "" means no field. The
// last arguments name the case.
func Want(t testing.TB, err error, code runtime.Code, field string, of ...any) {
	t.Helper()
	var e *runtime.Error
	if !errors.As(err, &e) || e.Code != code || e.Field != field {
		t.Error(append(of, fmt.Sprintf("got error %v, want %s for the field %q", err, code, field))...)
	}
}
