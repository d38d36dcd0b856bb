// Joined to franz-go's own tests at test time: the chain of groups that its TestGroupETL runs, with
// the client-side balancers which that test leaves out.
package kgo

import (
	"context"
	"strconv"
	"testing"
)

func TestGroupETLOfOtherBalancers(t *testing.T) {
	topic, cleanup := tmpTopic(t)
	t.Cleanup(cleanup)
	body := []byte(randsha())
	producer, err := newTestClient()
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	for number := range testRecordLimit {
		record := &Record{Topic: topic, Key: []byte(strconv.Itoa(number)), Value: body}
		producer.Produce(context.Background(), record, func(_ *Record, err error) {
			if err != nil {
				t.Errorf("not produced: %v", err)
			}
		})
	}
	if err := producer.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}
	for name, balancer := range map[string]GroupBalancer{
		"roundrobin": RoundRobinBalancer(),
		"sticky":     StickyBalancer(),
	} {
		t.Run(name, func(t *testing.T) {
			testChainETL(t, topic, body, false, balancer, false, "")
		})
	}
}
