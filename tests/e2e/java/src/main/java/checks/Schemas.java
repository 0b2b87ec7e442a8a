package checks;

import static checks.Context.expect;
import static checks.Context.expectEqual;
import static checks.Context.expectRefused;
import static checks.Context.receive;

import java.util.Arrays;
import java.util.Map;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.PulsarClientException.IncompatibleSchemaException;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.schema.GenericRecord;
import org.apache.pulsar.client.api.schema.GenericSchema;
import org.apache.pulsar.client.api.schema.SchemaDefinition;
import org.apache.pulsar.common.schema.KeyValue;
import org.apache.pulsar.common.schema.KeyValueEncodingType;

/** Schemas: stored, versioned, asked for, refused. */
final class Schemas {
    private Schemas() {}

    /** A record. */
    public static final class Order {
        public int number;
        public String item;
    }

    /** The same with a field more. */
    public static final class OrderWithPrice {
        public int number;
        public String item;
        public Double price;
    }

    /** One that does not go with them. */
    public static final class Other {
        public String[] number;
    }

    static void register(Map<String, Main.Check> checks) {
        checks.put("json schema", context -> records(context, true));
        checks.put("avro schema", context -> records(context, false));
        checks.put("schema versions", Schemas::versions);
        checks.put("schema asked for", Schemas::autoConsume);
        checks.put("schema by the message", Schemas::severalSchemas);
        checks.put("key value schema", Schemas::keyValue);
        checks.put("incompatible schema", Schemas::incompatible);
    }

    private static <T> Schema<T> schema(Class<T> kind, boolean json) {
        SchemaDefinition<T> definition =
                SchemaDefinition.<T>builder().withPojo(kind).withAlwaysAllowNull(true).build();
        return json ? Schema.JSON(definition) : Schema.AVRO(definition);
    }

    private static Order order(int number) {
        Order order = new Order();
        order.number = number;
        order.item = "tea";
        return order;
    }

    private static void records(Context context, boolean json) throws Exception {
        Schema<Order> schema = schema(Order.class, json);
        Consumer<Order> consumer =
                context.client().newConsumer(schema).topic(context.topic())
                        .subscriptionName("all").subscribe();

        context.client().newProducer(schema).topic(context.topic()).create().send(order(7));

        Message<Order> message = receive(consumer);
        expectEqual(message.getValue().number, 7);
        expectEqual(message.getValue().item, "tea");
        expect(Arrays.equals(message.getSchemaVersion(), new byte[8]), "version of the message");
    }

    private static final String NARROW =
            "{\"type\":\"record\",\"name\":\"Order\",\"fields\":["
                    + "{\"name\":\"number\",\"type\":\"int\"}]}";
    private static final String WIDE =
            "{\"type\":\"record\",\"name\":\"Order\",\"fields\":["
                    + "{\"name\":\"number\",\"type\":\"int\"},"
                    + "{\"name\":\"item\",\"type\":[\"null\",\"string\"],\"default\":null}]}";

    private static GenericSchema<GenericRecord> avro(String definition) {
        SchemaDefinition<Order> described =
                SchemaDefinition.<Order>builder().withJsonDef(definition).build();
        return Schema.generic(Schema.AVRO(described).getSchemaInfo());
    }

    private static void versions(Context context) throws Exception {
        Consumer<GenericRecord> consumer =
                context.client().newConsumer(Schema.AUTO_CONSUME()).topic(context.topic())
                        .subscriptionName("all").subscribe();
        String[] definitions = {NARROW, WIDE, NARROW};
        for (String definition : definitions) {
            GenericSchema<GenericRecord> schema = avro(definition);
            try (Producer<GenericRecord> producer =
                    context.client().newProducer(schema).topic(context.topic()).create()) {
                producer.send(schema.newRecordBuilder().set("number", 7).build());
            }
        }
        for (int number = 0; number < definitions.length; number++) {
            Message<GenericRecord> message = receive(consumer);
            expectEqual(message.getValue().getField("number"), 7);
            expectEqual(message.getValue().getFields().size(), number == 1 ? 2 : 1);
            expectEqual((int) message.getSchemaVersion()[7], number == 1 ? 1 : 0);
        }
    }

    private static void autoConsume(Context context) throws Exception {
        Consumer<GenericRecord> consumer =
                context.client().newConsumer(Schema.AUTO_CONSUME()).topic(context.topic())
                        .subscriptionName("all").subscribe();

        context.client().newProducer(schema(Order.class, false)).topic(context.topic()).create()
                .send(order(9));

        GenericRecord record = receive(consumer).getValue();
        expectEqual(record.getField("number"), 9);
        expectEqual(String.valueOf(record.getField("item")), "tea");
        // Bytes that fit what the topic has: the client asks for the schema first.
        context.client().newProducer(Schema.AUTO_PRODUCE_BYTES()).topic(context.topic()).create()
                .send(schema(Order.class, false).encode(order(10)));
        expectEqual(receive(consumer).getValue().getField("number"), 10);
    }

    private static void severalSchemas(Context context) throws Exception {
        Consumer<GenericRecord> consumer =
                context.client().newConsumer(Schema.AUTO_CONSUME()).topic(context.topic())
                        .subscriptionName("all").subscribe();
        Producer<Order> producer =
                context.client().newProducer(schema(Order.class, true)).topic(context.topic())
                        .create();
        OrderWithPrice priced = new OrderWithPrice();
        priced.number = 2;
        priced.price = 2.5;

        producer.send(order(1));
        producer.newMessage(schema(OrderWithPrice.class, true)).value(priced).send();

        expectEqual(receive(consumer).getValue().getField("number"), 1);
        expectEqual(receive(consumer).getValue().getField("price"), 2.5);
    }

    private static void keyValue(Context context) throws Exception {
        Schema<KeyValue<String, Order>> schema =
                Schema.KeyValue(
                        Schema.STRING, schema(Order.class, true), KeyValueEncodingType.SEPARATED);
        Consumer<KeyValue<String, Order>> consumer =
                context.client().newConsumer(schema).topic(context.topic())
                        .subscriptionName("all").subscribe();

        context.client().newProducer(schema).topic(context.topic()).create()
                .send(new KeyValue<>("k", order(3)));

        KeyValue<String, Order> pair = receive(consumer).getValue();
        expectEqual(pair.getKey(), "k");
        expectEqual(pair.getValue().number, 3);
    }

    private static void incompatible(Context context) throws Exception {
        context.client().newProducer(schema(Order.class, false)).topic(context.topic()).create();

        expectRefused(
                IncompatibleSchemaException.class,
                () -> context.client().newProducer(schema(Other.class, false))
                        .topic(context.topic()).create());
        expectRefused(
                IncompatibleSchemaException.class,
                () -> context.client().newConsumer(Schema.INT64).topic(context.topic())
                        .subscriptionName("all").subscribe());
        expectRefused(
                PulsarClientException.class,
                () -> context.client().newProducer(Schema.INT64).topic(context.topic()).create());
    }
}
