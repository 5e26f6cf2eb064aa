package guard

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
)

// unasked are the methods that don't check the caller: they concern an object from an earlier
// checked call, or no object.
var unasked = []string{"PoolStatus", "StartDurations", "PoolHistory", "ClaimStats", "BatchCases", "BatchBuild", "Usage", "ExecutionUsage", "RunnerUsage", "Go", "CountSubscription", "FailureRecorder"}

// TestEveryMethodChecksItsCaller calls methods on a guard without an engine, so that anything later
// than the check panics.
func TestEveryMethodChecksItsCaller(t *testing.T) {
	g := reflect.ValueOf(New(nil, nil, nil))
	kind := g.Type()
	for i := range kind.NumMethod() {
		name := kind.Method(i).Name
		if slices.Contains(unasked, name) {
			continue
		}
		for who, ctx := range map[string]context.Context{
			"nobody":                   t.Context(),
			"a grant without rights":   access.With(t.Context(), access.Principal{Kind: access.KindGrant, Grant: &access.Grant{Execution: "x"}}),
			"a token without any role": access.With(t.Context(), access.Principal{Kind: access.KindToken, AllTenants: true}),
		} {
			want := runtime.CodeForbidden
			if who == "nobody" {
				want = runtime.CodeUnauthenticated
			}
			if err := call(ctx, g.Method(i), name); runtime.CodeOf(err) != want {
				t.Errorf("%s by %s: %v, want %s", name, who, err, want)
			}
		}
	}
	for _, name := range unasked {
		if _, ok := kind.MethodByName(name); !ok {
			t.Errorf("there is no method %s", name)
		}
	}
}

// call calls a method with zero values, and returns its error, or that it panicked.
func call(ctx context.Context, method reflect.Value, name string) (err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			err = fmt.Errorf("it continued: %v", panicked)
		}
	}()
	in := []reflect.Value{reflect.ValueOf(ctx)}
	for i := 1; i < method.Type().NumIn(); i++ {
		in = append(in, reflect.Zero(method.Type().In(i)))
	}
	if name == "Allowed" || name == "AllowExecution" {
		in[1] = reflect.ValueOf(access.Operation("version"))
	}
	out := method.Call(in)
	err, _ = out[len(out)-1].Interface().(error)
	return err
}
