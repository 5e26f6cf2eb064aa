package scheduler

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/runtime"
)

// The API shows the scheduler's enums as they are, so the schema has all of them; in addition it
// has only Nomad's.
func TestSchemaHasAllSchedulerEnums(t *testing.T) {
	schema, err := os.ReadFile("../../schema.graphqls")
	if err != nil {
		t.Fatal(err)
	}
	for enum, words := range map[string][]string{
		"EvaluationType":    texts(runtime.EvaluationPlace, runtime.EvaluationStop, runtime.EvaluationCollect),
		"EvaluationTrigger": texts(runtime.TriggerRegister, runtime.TriggerDeregister, runtime.TriggerRestore, runtime.TriggerAllocationLost, runtime.TriggerNoRoom, runtime.TriggerFailedFollowUp, runtime.TriggerInterval, runtime.TriggerNodeChanged, runtime.TriggerPreempted, runtime.TriggerOther), // the last three are Nomad's
		"EvaluationStatus":  texts(runtime.EvaluationPending, runtime.EvaluationBlocked, runtime.EvaluationComplete, runtime.EvaluationFailed, runtime.EvaluationCancelled),
		"AllocationStatus":  texts(runtime.AllocationPending, runtime.AllocationRunning, runtime.AllocationComplete, runtime.AllocationFailed, runtime.AllocationLost),
		"DesiredState":      texts(runtime.DesiredRun, runtime.DesiredStop),
		"Dimension":         texts(dimensions[0].name, dimensions[1].name, dimensions[2].name, dimensions[3].name),
	} {
		body := regexp.MustCompile(`(?s)\nenum ` + enum + ` \{\n(.*?)\n\}`).FindSubmatch(schema)
		if body == nil {
			t.Fatalf("the schema has no enum %s", enum)
		}
		var has []string
		for _, value := range regexp.MustCompile(`(?m)^  ([A-Z_]+)$`).FindAllSubmatch(body[1], -1) {
			has = append(has, string(value[1]))
		}
		if !slices.Equal(has, words) {
			t.Errorf("%s: the schema has %v, the scheduler %v", enum, has, words)
		}
	}
}

func texts[T ~string](words ...T) []string {
	var all []string
	for _, word := range words {
		all = append(all, strings.ToUpper(string(word)))
	}
	return all
}
