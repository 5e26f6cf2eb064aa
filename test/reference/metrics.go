package reference

import "strings"

func metricsTable(all []Metric) string {
	t := table{head: []string{"metric", "type", "labels", "what"}}
	for _, m := range all {
		var labels []string
		for _, label := range m.Labels {
			labels = append(labels, code(label))
		}
		t.add(code(m.Name), m.Type, strings.Join(labels, ", "), strings.ReplaceAll(prose(m.Help), "Alert ", "**Alert** "))
	}
	return t.String()
}
