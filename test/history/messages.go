// SPDX-License-Identifier: Apache-2.0

package main

import "fmt"

// words holds the last words of containers (command stamp) against the rest: each run has its own, they speak of the pod they are told of, and here is
// told what was said there.
func (c *checker) words() {
	runOf, wordsOf := map[string]string{}, map[string]string{} // by word and by container
	for _, f := range c.facts {
		if f.Pod == nil {
			continue
		}
		for _, container := range f.Pod.Containers {
			for _, end := range []*End{container.Ended, container.Before} {
				if end == nil || end.Said == "" {
					continue
				}
				var word, whose string
				if _, err := fmt.Sscanf(end.Said, "run %s for pod %s from", &word, &whose); err != nil {
					continue // a runtime's own message
				}
				if whose != f.Pod.For {
					c.fault(lawWords, f.Pod.For, f.At, "%s it is told that a container of pod %s ended: %s", f.Cluster, whose, end.Said)
				}
				if before := runOf[word]; before != "" && before != end.ID {
					c.fault(lawWords, f.Pod.For, f.At, "%s run %s is told of container %s and of %s", f.Cluster, word, before, end.ID)
				}
				if before := wordsOf[end.ID]; before != "" && before != word {
					c.fault(lawWords, f.Pod.For, f.At, "%s container %s is told to be run %s and %s", f.Cluster, end.ID, before, word)
				}
				runOf[word], wordsOf[end.ID] = end.ID, word
			}
		}
	}
	c.report.Count["last words of runs"] = len(runOf)
}
