// SPDX-License-Identifier: Apache-2.0

package main

import "fmt"

// messages checks the termination messages of containers (command stamp): each run writes its own ID and the UID of its pod, and both
// clusters must show that message for that run of that pod only.
func (c *checker) messages() {
	containerOf, runOf := map[string]string{}, map[string]string{} // container by run ID, and run ID by container
	for _, f := range c.facts {
		if f.Pod == nil {
			continue
		}
		for _, container := range f.Pod.Containers {
			for _, end := range []*End{container.Ended, container.Previous} {
				if end == nil || end.Message == "" {
					continue
				}
				var runID, pod string
				if _, err := fmt.Sscanf(end.Message, "run %s for pod %s from", &runID, &pod); err != nil {
					continue // a container runtime's own message
				}
				if pod != f.Pod.For {
					c.violation(lawMessages, f.Pod.For, f.At, "the %s shows the message of a container of pod %s: %s", f.Cluster, pod, end.Message)
				}
				if before := containerOf[runID]; before != "" && before != end.ID {
					c.violation(lawMessages, f.Pod.For, f.At, "the %s shows the message of run %s for container %s and for %s", f.Cluster, runID, before, end.ID)
				}
				if before := runOf[end.ID]; before != "" && before != runID {
					c.violation(lawMessages, f.Pod.For, f.At, "the %s shows for container %s the messages of runs %s and %s", f.Cluster, end.ID, before, runID)
				}
				containerOf[runID], runOf[end.ID] = end.ID, runID
			}
		}
	}
	c.report.Count["termination messages of runs"] = len(containerOf)
}
