package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"golang.org/x/sys/unix"
)

const (
	pauseTime    = 10 * time.Millisecond
	inFlightMax  = 200
	settledTime  = time.Minute
	subscription = "attached"
)

// A producer and a consumer at work on one topic, and at the end a reader of all that it holds. They
// record what they see as nextgen/harness/history/model.py wants it.
//
// Sends until its input ends, then waits until every message is acknowledged and consumed. Prints a
// line with "acked" twice a second, and one with "ended" at the end.
type recorder struct {
	topic, name  string
	lock         sync.Mutex
	history      *os.File
	acked        atomic.Int64
	acknowledged sync.Map
	consumed     sync.Map
	isEnded      atomic.Bool
	isConsumed   atomic.Bool
}

type fields map[string]any

// The clock that all recording processes of a machine share.
func nowNs() int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err)
	}
	return now.Nano()
}

func (r *recorder) record(content fields) {
	line, err := json.Marshal(content)
	if err == nil {
		r.lock.Lock()
		defer r.lock.Unlock()
		_, err = r.history.Write(append(line, '\n'))
	}
	if err != nil {
		panic(err)
	}
}

func (r *recorder) message(kind string, sequence int) fields {
	return fields{"record": kind, "topic": r.topic, "producer": r.name, "sequence": sequence}
}

func at(content fields, id pulsar.MessageID) fields {
	content["ledger"], content["entry"], content["batch_index"] = id.LedgerID(), id.EntryID(), id.BatchIdx()
	return content
}

func recorded(url, topic, name, path string) error {
	history, err := os.Create(path)
	if err != nil {
		return err
	}
	defer history.Close()
	r := &recorder{topic: topic, name: name, history: history}
	r.record(fields{"format": "nextgen-history", "version": 1})
	client := newClient(url)
	consumer, err := subscribe(client, pulsar.ConsumerOptions{Topic: topic, SubscriptionName: subscription})
	if err != nil {
		return err
	}
	producer, err := client.CreateProducer(pulsar.ProducerOptions{
		Topic: topic, Name: name, DisableBatching: true, SendTimeout: -1,
	})
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		r.isEnded.Store(true)
	}()
	go func() {
		for {
			fmt.Printf("{\"acked\":%d}\n", r.acked.Load())
			time.Sleep(500 * time.Millisecond)
		}
	}()
	consuming := make(chan struct{})
	go r.consume(consumer, consuming)
	r.send(producer)
	waitFor(func() bool { return covers(&r.consumed, &r.acknowledged) })
	r.isConsumed.Store(true)
	<-consuming
	r.record(fields{"record": "Drained", "consumer": "", "topic": topic, "subscription": subscription})
	if err := r.readAll(client); err != nil {
		return err
	}
	fmt.Printf("{\"ended\":%d}\n", r.acked.Load())
	return nil
}

func (r *recorder) send(producer pulsar.Producer) {
	room := make(chan struct{}, inFlightMax)
	for number := 0; !r.isEnded.Load(); {
		select {
		case room <- struct{}{}:
		case <-time.After(100 * time.Millisecond):
			continue
		}
		sequence := number
		number++
		sentNs := nowNs()
		sent := r.message("Publish", sequence)
		sent["sent_ns"] = sentNs
		r.record(sent)
		message := pulsar.ProducerMessage{Payload: []byte(strconv.Itoa(sequence))}
		producer.SendAsync(context.Background(), &message,
			func(id pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
				if err == nil {
					acked := at(r.message("Publish", sequence), id)
					acked["sent_ns"], acked["acked_ns"] = sentNs, nowNs()
					r.record(acked)
					r.acknowledged.Store(sequence, true)
					r.acked.Add(1)
				}
				<-room
			})
		time.Sleep(pauseTime)
	}
	waitFor(func() bool { return len(room) == 0 })
}

func (r *recorder) consume(consumer pulsar.Consumer, ended chan struct{}) {
	defer close(ended)
	for !r.isConsumed.Load() {
		next, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		message, err := consumer.Receive(next)
		cancel()
		if err != nil {
			continue
		}
		r.received(message, r.name+"-"+subscription, fields{"subscription": subscription, "key": r.name})
		// One that fails is no error: the message comes again.
		_ = consumer.Ack(message)
	}
}

func (r *recorder) readAll(client pulsar.Client) error {
	name := r.name + "-reader"
	reader, err := client.CreateReader(pulsar.ReaderOptions{
		Topic: r.topic, StartMessageID: pulsar.EarliestMessageID(),
	})
	if err != nil {
		return err
	}
	defer reader.Close()
	for reader.HasNext() {
		next, cancel := context.WithTimeout(context.Background(), settledTime)
		message, err := reader.Next(next)
		cancel()
		if err != nil {
			return err
		}
		r.received(message, name, nil)
	}
	r.record(fields{"record": "Drained", "consumer": name, "topic": r.topic})
	return nil
}

func (r *recorder) received(message pulsar.Message, consumer string, more fields) {
	sequence, err := strconv.Atoi(string(message.Payload()))
	if err != nil {
		panic(err)
	}
	content := at(r.message("Received", sequence), message.ID())
	content["consumer"], content["received_ns"] = consumer, nowNs()
	for key, value := range more {
		content[key] = value
	}
	r.record(content)
	if more != nil {
		r.consumed.Store(sequence, true)
	}
}

func covers(all *sync.Map, some *sync.Map) bool {
	isCovered := true
	some.Range(func(key, _ any) bool {
		_, isCovered = all.Load(key)
		return isCovered
	})
	return isCovered
}

func waitFor(holds func() bool) {
	for deadline := time.Now().Add(settledTime); !holds() && time.Now().Before(deadline); {
		time.Sleep(20 * time.Millisecond)
	}
}
