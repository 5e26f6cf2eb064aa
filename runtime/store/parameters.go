package store

import (
	"strconv"
	"strings"

	"github.com/rockpool/rockpool/runtime"
)

// mostParameters bounds the parameters of a statement to what every database accepts.
const mostParameters = 1000

// parameters returns n parameters of a statement, as "$3, $4".
func parameters(first, n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = "$" + strconv.Itoa(first+i)
	}
	return strings.Join(all, ", ")
}

// among returns the condition, to follow a column's name, that it is one of ids. There must be at
// least one. The ids are the statement's first parameters.
func among(ids []runtime.ExecutionID) (these string, args []any) {
	for _, id := range ids {
		args = append(args, id)
	}
	return " IN (" + parameters(1, len(ids)) + ")", args
}
