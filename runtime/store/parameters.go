package store

import (
	"strconv"
	"strings"

	"github.com/rockpool/rockpool/runtime"
)

// mostParameters are so many that any database takes them in one statement.
const mostParameters = 1000

// parameters returns n of a statement's parameters, as "$3, $4".
func parameters(first, n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = "$" + strconv.Itoa(first+i)
	}
	return strings.Join(all, ", ")
}

// among returns what follows a column in the condition that it is one of some ids, at least
// one. They are the statement's first parameters.
func among(ids []runtime.ExecutionID) (these string, args []any) {
	for _, id := range ids {
		args = append(args, id)
	}
	return " IN (" + parameters(1, len(ids)) + ")", args
}
