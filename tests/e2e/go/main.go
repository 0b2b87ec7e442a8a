// What the stock Go client sees of a cluster. Prints one JSON line for each check; one that needs
// the cluster disturbed prints a line with "ask" and waits for a line.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sort"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	pulsarlog "github.com/apache/pulsar-client-go/pulsar/log"
)

const (
	receiveTime = 30 * time.Second
	pollTime    = time.Second
	halfCount   = 100
)

var (
	prefix  string
	answers = bufio.NewScanner(os.Stdin)
)

func main() {
	if os.Args[1] == "secured" {
		secured(os.Args[2], os.Args[3])
		return
	}
	if os.Args[1] == "recorded" {
		if err := recorded(os.Args[2], os.Args[3], os.Args[4], os.Args[5]); err != nil {
			panic(err)
		}
		return
	}
	url := os.Args[1]
	prefix = os.Args[2]
	client := newClient(url)
	checks := []struct {
		name string
		run  func(pulsar.Client) error
	}{
		{"produce and consume", produceAndConsume},
		{"batches and compression", batches},
		{"reader", read},
		{"exclusive producer", exclusiveProducer},
		{"shared subscription", shared},
		{"key shared subscription", keyShared},
		{"partitions", partitions},
		{"partitions that grow", growingPartitions},
		{"pattern", pattern},
		{"topics come and go", comeAndGo},
		{"seek by time", seekByTime},
		{"http service url", overHTTP},
		{"topic moved", disturbed("move")},
		{"broker killed", disturbed("kill owner")},
	}
	for _, each := range checks {
		line := map[string]string{"check": each.name, "error": ""}
		if err := each.run(client); err != nil {
			line["error"] = err.Error()
		}
		print(line)
	}
}

func newClient(url string) pulsar.Client {
	silent := slog.New(slog.NewTextHandler(io.Discard, nil))
	client, err := pulsar.NewClient(pulsar.ClientOptions{
		URL:              url,
		OperationTimeout: receiveTime,
		Logger:           pulsarlog.NewLoggerWithSlog(silent),
	})
	if err != nil {
		panic(err)
	}
	return client
}

func print(content map[string]string) {
	line, _ := json.Marshal(content)
	fmt.Println(string(line))
}

func ask(what string, topic string) (string, error) {
	print(map[string]string{"ask": what, "topic": topic})
	if !answers.Scan() || strings.HasPrefix(answers.Text(), "cannot") {
		return "", fmt.Errorf("the test answered %q", answers.Text())
	}
	return answers.Text(), nil
}

func topicOf(name string) string {
	return "persistent://public/default/" + prefix + name
}

func numbered(count int) []string {
	found := make([]string, count)
	for number := range found {
		found[number] = fmt.Sprintf("message-%04d", number)
	}
	return found
}

func publish(producer pulsar.Producer, contents []string) error {
	for number, content := range contents {
		message := pulsar.ProducerMessage{
			Payload:    []byte(content),
			Key:        fmt.Sprintf("key-%d", number%10),
			Properties: map[string]string{"colour": "green"},
		}
		if _, err := producer.Send(context.Background(), &message); err != nil {
			return err
		}
	}
	return nil
}

func publishTo(client pulsar.Client, topic string, contents []string) error {
	producer, err := client.CreateProducer(pulsar.ProducerOptions{Topic: topic})
	if err != nil {
		return err
	}
	defer producer.Close()
	return publish(producer, contents)
}

// Returns the distinct contents that came, in order, once there are so many.
func receive(consumer pulsar.Consumer, count int) ([]string, error) {
	deadline, cancel := context.WithTimeout(context.Background(), receiveTime)
	defer cancel()
	found := []string{}
	seen := map[string]bool{}
	for len(found) < count {
		message, err := consumer.Receive(deadline)
		if err != nil {
			return nil, fmt.Errorf("only %d messages came: %w", len(found), err)
		}
		if err := consumer.Ack(message); err != nil {
			return nil, err
		}
		if content := string(message.Payload()); !seen[content] {
			seen[content] = true
			found = append(found, content)
		}
	}
	return found, nil
}

func expect(found []string, expected []string) error {
	if strings.Join(found, " ") != strings.Join(expected, " ") {
		return fmt.Errorf("found %v, expected %v", found, expected)
	}
	return nil
}

func expectAll(found []string, expected []string) error {
	sort.Strings(found)
	return expect(found, expected)
}

func subscribe(client pulsar.Client, options pulsar.ConsumerOptions) (pulsar.Consumer, error) {
	if options.SubscriptionName == "" {
		options.SubscriptionName = "all"
	}
	options.SubscriptionInitialPosition = pulsar.SubscriptionPositionEarliest
	options.AutoDiscoveryPeriod = pollTime
	return client.Subscribe(options)
}

func roundTrip(client pulsar.Client, topic string, contents []string) error {
	consumer, err := subscribe(client, pulsar.ConsumerOptions{Topic: topic})
	if err != nil {
		return err
	}
	defer consumer.Close()
	if err := publishTo(client, topic, contents); err != nil {
		return err
	}
	found, err := receive(consumer, len(contents))
	if err != nil {
		return err
	}
	return expect(found, contents)
}

func produceAndConsume(client pulsar.Client) error {
	return roundTrip(client, topicOf("plain"), numbered(30))
}

func overHTTP(client pulsar.Client) error {
	url, err := ask("http service url", "")
	if err != nil {
		return err
	}
	over := newClient(url)
	defer over.Close()
	return roundTrip(over, topicOf("over-http"), numbered(10))
}

func batches(client pulsar.Client) error {
	for name, compression := range map[string]pulsar.CompressionType{
		"lz4": pulsar.LZ4, "zlib": pulsar.ZLib, "zstd": pulsar.ZSTD,
	} {
		topic := topicOf("batches-" + name)
		producer, err := client.CreateProducer(pulsar.ProducerOptions{
			Topic:                   topic,
			CompressionType:         compression,
			BatchingMaxPublishDelay: 50 * time.Millisecond,
		})
		if err != nil {
			return err
		}
		for _, content := range numbered(50) {
			message := pulsar.ProducerMessage{Payload: []byte(content)}
			producer.SendAsync(context.Background(), &message,
				func(pulsar.MessageID, *pulsar.ProducerMessage, error) {})
		}
		if err := producer.FlushWithCtx(context.Background()); err != nil {
			return err
		}
		producer.Close()
		consumer, err := subscribe(client, pulsar.ConsumerOptions{Topic: topic})
		if err != nil {
			return err
		}
		found, err := receive(consumer, 50)
		consumer.Close()
		if err != nil {
			return err
		}
		if err := expect(found, numbered(50)); err != nil {
			return err
		}
	}
	return nil
}

func read(client pulsar.Client) error {
	topic := topicOf("read")
	// Of a topic that is not there: reading creates it, as subscribing does.
	reader, err := client.CreateReader(pulsar.ReaderOptions{
		Topic: topic, StartMessageID: pulsar.EarliestMessageID(),
	})
	if err != nil {
		return err
	}
	defer reader.Close()
	if err := publishTo(client, topic, numbered(20)); err != nil {
		return err
	}
	deadline, cancel := context.WithTimeout(context.Background(), receiveTime)
	defer cancel()
	found := []string{}
	for len(found) < 20 {
		message, err := reader.Next(deadline)
		if err != nil {
			return fmt.Errorf("only %d messages came: %w", len(found), err)
		}
		found = append(found, string(message.Payload()))
	}
	if reader.HasNext() {
		return errors.New("there is more than was published")
	}
	return expect(found, numbered(20))
}

func exclusiveProducer(client pulsar.Client) error {
	options := pulsar.ProducerOptions{
		Topic:              topicOf("exclusive"),
		ProducerAccessMode: pulsar.ProducerAccessModeExclusive,
	}
	producer, err := client.CreateProducer(options)
	if err != nil {
		return err
	}
	defer producer.Close()
	second, err := client.CreateProducer(options)
	if err == nil {
		second.Close()
		return errors.New("a second exclusive producer was let in")
	}
	if !strings.Contains(err.Error(), "ProducerFenced") {
		return fmt.Errorf("the second one was refused with %w", err)
	}
	return nil
}

// Two consumers get everything between them.
func together(client pulsar.Client, topic string, kind pulsar.SubscriptionType) error {
	channel := make(chan pulsar.ConsumerMessage, 100)
	keys := map[string]string{}
	for _, name := range []string{"first", "second"} {
		consumer, err := subscribe(client, pulsar.ConsumerOptions{
			Topic: topic, Type: kind, Name: name, MessageChannel: channel,
		})
		if err != nil {
			return err
		}
		defer consumer.Close()
	}
	if err := publishTo(client, topic, numbered(60)); err != nil {
		return err
	}
	found := []string{}
	deadline := time.After(receiveTime)
	for len(found) < 60 {
		select {
		case message := <-channel:
			if err := message.Consumer.Ack(message); err != nil {
				return err
			}
			name, key := message.Consumer.Name(), message.Key()
			if before, known := keys[key]; known && before != name && kind == pulsar.KeyShared {
				return fmt.Errorf("key %s went to %s and to %s", key, before, name)
			}
			keys[key] = name
			found = append(found, string(message.Payload()))
		case <-deadline:
			return fmt.Errorf("only %d messages came", len(found))
		}
	}
	return expectAll(found, numbered(60))
}

func shared(client pulsar.Client) error {
	return together(client, topicOf("shared"), pulsar.Shared)
}

func keyShared(client pulsar.Client) error {
	return together(client, topicOf("key-shared"), pulsar.KeyShared)
}

func partitions(client pulsar.Client) error {
	topic := topicOf("parted")
	if _, err := ask("create with 4 partitions", topic); err != nil {
		return err
	}
	names, err := client.TopicPartitions(topic)
	if err != nil {
		return err
	}
	if len(names) != 4 {
		return fmt.Errorf("the client sees partitions %v", names)
	}
	consumer, err := subscribe(client, pulsar.ConsumerOptions{Topic: topic})
	if err != nil {
		return err
	}
	defer consumer.Close()
	if err := publishTo(client, topic, numbered(80)); err != nil {
		return err
	}
	found, err := receive(consumer, 80)
	if err != nil {
		return err
	}
	return expectAll(found, numbered(80))
}

// Producer and consumer find new partitions by their own polling.
func growingPartitions(client pulsar.Client) error {
	topic := topicOf("growing")
	if _, err := ask("create with 4 partitions", topic); err != nil {
		return err
	}
	producer, err := client.CreateProducer(pulsar.ProducerOptions{
		Topic: topic, PartitionsAutoDiscoveryInterval: pollTime, DisableBatching: true,
	})
	if err != nil {
		return err
	}
	defer producer.Close()
	consumer, err := subscribe(client, pulsar.ConsumerOptions{Topic: topic})
	if err != nil {
		return err
	}
	defer consumer.Close()
	if _, err := ask("grow to 6 partitions", topic); err != nil {
		return err
	}
	deadline := time.Now().Add(receiveTime)
	for number := 0; time.Now().Before(deadline); number++ {
		message := pulsar.ProducerMessage{Payload: []byte(fmt.Sprint(number))}
		if _, err := producer.Send(context.Background(), &message); err != nil {
			return err
		}
		next, cancel := context.WithTimeout(context.Background(), receiveTime)
		received, err := consumer.Receive(next)
		cancel()
		if err != nil {
			return err
		}
		if received.ID().PartitionIdx() >= 4 {
			return consumer.Ack(received)
		}
		time.Sleep(20 * time.Millisecond)
	}
	return errors.New("nothing came from a new partition")
}

// The client polls for topics: one is there before it subscribes, one comes later.
func pattern(client pulsar.Client) error {
	if err := publishTo(client, topicOf("pattern-1"), []string{"first"}); err != nil {
		return err
	}
	consumer, err := subscribe(client, pulsar.ConsumerOptions{
		TopicsPattern: "persistent://public/default/" + prefix + "pattern-.*",
	})
	if err != nil {
		return err
	}
	defer consumer.Close()
	if err := publishTo(client, topicOf("pattern-2"), []string{"second"}); err != nil {
		return err
	}
	found, err := receive(consumer, 2)
	if err != nil {
		return err
	}
	return expectAll(found, []string{"first", "second"})
}

// Topics of several shards, in a namespace where no client creates any: a deleted one stays away.
func comeAndGo(client pulsar.Client) error {
	namespace, err := ask("a topic that must not be created", "")
	if err != nil {
		return err
	}
	topics := []string{}
	for _, content := range numbered(6) {
		topics = append(topics, namespace+"/"+prefix+"go-"+content)
	}
	create := func(topics []string) error {
		for _, topic := range topics {
			if _, err := ask("create", topic); err != nil {
				return err
			}
		}
		return nil
	}
	if err := create(topics[:3]); err != nil {
		return err
	}
	consumer, err := subscribe(client, pulsar.ConsumerOptions{
		TopicsPattern: namespace + "/" + prefix + "go-.*",
	})
	if err != nil {
		return err
	}
	defer consumer.Close()
	arrive := func(topics []string, content string) error {
		expected := []string{}
		for number, topic := range topics {
			one := fmt.Sprintf("%s-%d", content, number)
			expected = append(expected, one)
			if err := publishTo(client, topic, []string{one}); err != nil {
				return err
			}
		}
		found, err := receive(consumer, len(expected))
		if err != nil {
			return fmt.Errorf("%s: %w", content, err)
		}
		return expectAll(found, expected)
	}
	if err := create(topics[3:]); err != nil {
		return err
	}
	if err := arrive(topics, "later"); err != nil {
		return err
	}
	if _, err := ask("delete", topics[5]); err != nil {
		return err
	}
	if err := arrive(topics[:5], "deleted"); err != nil {
		return err
	}
	time.Sleep(2 * pollTime)
	if _, err := ask("is absent", topics[5]); err != nil {
		return err
	}
	if err := create(topics[5:]); err != nil {
		return err
	}
	return arrive(topics, "again")
}

func seekByTime(client pulsar.Client) error {
	topic := topicOf("seek")
	consumer, err := subscribe(client, pulsar.ConsumerOptions{Topic: topic})
	if err != nil {
		return err
	}
	defer consumer.Close()
	if err := publishTo(client, topic, numbered(10)); err != nil {
		return err
	}
	if _, err := receive(consumer, 10); err != nil {
		return err
	}
	if err := consumer.SeekByTime(time.Now().Add(-time.Hour)); err != nil {
		return err
	}
	found, err := receive(consumer, 10)
	if err != nil {
		return err
	}
	return expect(found, numbered(10))
}

// Producer and consumer go on by themselves; nothing that was acknowledged is missing.
func disturbed(disturbance string) func(pulsar.Client) error {
	return func(client pulsar.Client) error {
		topic := topicOf(strings.ReplaceAll(disturbance, " ", "-"))
		consumer, err := subscribe(client, pulsar.ConsumerOptions{Topic: topic})
		if err != nil {
			return err
		}
		defer consumer.Close()
		producer, err := client.CreateProducer(pulsar.ProducerOptions{Topic: topic})
		if err != nil {
			return err
		}
		defer producer.Close()
		contents := numbered(2 * halfCount)
		if err := publish(producer, contents[:halfCount]); err != nil {
			return err
		}
		if _, err := ask(disturbance, topic); err != nil {
			return err
		}
		if err := publish(producer, contents[halfCount:]); err != nil {
			return err
		}
		found, err := receive(consumer, len(contents))
		if err != nil {
			return err
		}
		return expectAll(found, contents)
	}
}
