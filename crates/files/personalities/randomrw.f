# Reads and writes at random places of one large file.
set $dir=/tmp
set $filesize=1g
set $iosize=8k
set $nthreads=1
set $workingset=0
set $directio=0
define file name=largefile1,path=$dir,size=$filesize,prealloc,reuse
define process name=rand1,instances=1 {
  thread name=reader1,memsize=5m,instances=$nthreads {
    flowop read name=rand-read1,filesetname=largefile1,iosize=$iosize,random,workingset=$workingset,directio=$directio
  }
  thread name=writer1,memsize=5m,instances=$nthreads {
    flowop write name=rand-write1,filesetname=largefile1,iosize=$iosize,random,workingset=$workingset,directio=$directio
  }
}
run 60
